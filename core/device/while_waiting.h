// What a thread that waits for a device does meanwhile, beside tasks: it drives what comes from
// other processes, which would otherwise wait for a turn of their thread.
#pragma once
#include <atomic>

namespace shmap::detail {

// Null: nothing. Called often, by any thread that holds no lock; short, and never blocks.
extern std::atomic<void (*)() noexcept> while_waiting;

// Null: nothing. Told when a thread begins to call that again and again, and when it stops, because
// it goes on or goes to sleep.
extern std::atomic<void (*)(bool begins) noexcept> waits_actively;

class ActiveWait {
 public:
  ActiveWait() noexcept : tell_(waits_actively.load(std::memory_order_relaxed)) {
    if (tell_ != nullptr) tell_(true);
  }
  ~ActiveWait() {
    if (tell_ != nullptr) tell_(false);
  }
  ActiveWait(const ActiveWait&) = delete;
  ActiveWait& operator=(const ActiveWait&) = delete;

 private:
  void (*const tell_)(bool) noexcept;
};

inline void look_around() noexcept {
  if (auto* look = while_waiting.load(std::memory_order_relaxed)) look();
}

}  // namespace shmap::detail
