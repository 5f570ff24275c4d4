// What a thread does while it waits for a device, besides running tasks: it handles messages of
// other processes, which would otherwise wait until the thread that handles them gets a core.
#pragma once
#include <atomic>

namespace shmap::detail {

// Null: nothing to do. Called often, by any thread that holds no lock; the function is short and
// never blocks.
extern std::atomic<void (*)() noexcept> while_waiting;

// Null: nothing to do. Called when a thread begins to call while_waiting repeatedly, and when it
// stops, because it continues or goes to sleep.
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
