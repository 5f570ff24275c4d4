// What a thread does while it waits for a device, besides running tasks: it handles messages of
// other processes, which would otherwise wait until the thread that handles them gets a core.
#pragma once
#include <atomic>
#include <cstdint>

namespace shmap::detail {

// Whether a thread that waits has a reason to look again.
enum class LookAgain : std::uint8_t {
  no_reason,
  soon,      // what it waits for may come from another process
  yielding,  // so too, and the processes share cores: the other one may need this thread's
};

// Null: nothing to do. Called often, by any thread that holds no lock; the function is short and
// never blocks.
extern std::atomic<LookAgain (*)() noexcept> while_waiting;

// How a thread's looking changes: it begins to call while_waiting repeatedly; it ends, because what
// it waited for has come, and its next wait probably follows soon; or it hands over to the thread
// that handles messages otherwise, because it goes to sleep or runs a task. `hands_over` may come
// from a thread that does not look, too.
enum class Looking : std::uint8_t { begins, ends, ends_and_hands_over, hands_over };

// Null: nothing to do.
extern std::atomic<void (*)(Looking) noexcept> looking_changes;

class ActiveWait {
 public:
  ActiveWait() noexcept : tell_(looking_changes.load(std::memory_order_relaxed)) {
    if (tell_ != nullptr) tell_(Looking::begins);
  }
  ~ActiveWait() {
    if (tell_ != nullptr) tell_(hands_over_ ? Looking::ends_and_hands_over : Looking::ends);
  }
  ActiveWait(const ActiveWait&) = delete;
  ActiveWait& operator=(const ActiveWait&) = delete;
  void hand_over() noexcept { hands_over_ = true; }

 private:
  void (*const tell_)(Looking) noexcept;
  bool hands_over_ = false;
};

inline LookAgain look_around() noexcept {
  auto* look = while_waiting.load(std::memory_order_relaxed);
  return look != nullptr ? look() : LookAgain::no_reason;
}

// This thread is about to run a task instead of looking.
inline void hand_over_looking() noexcept {
  if (auto* tell = looking_changes.load(std::memory_order_relaxed)) tell(Looking::hands_over);
}

}  // namespace shmap::detail
