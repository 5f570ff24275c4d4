// The work of a thread that waits for a device, besides running tasks: it handles messages of other
// processes, which would otherwise wait until the thread that handles them gets a core.
#pragma once
#include <atomic>
#include <cstdint>

namespace shmap::detail {

// Whether a waiting thread has a reason to call while_waiting again.
enum class LookAgain : std::uint8_t {
  no_reason,
  soon,      // it may wait for data of another process
  yielding,  // likewise, and the processes share cores: the other process may need this thread's
             // core
  moved,     // data of another process has come, or was taken there: more may follow soon
};

// Null: nothing to do. Called often, by any thread that holds no lock except the submit mutex (a
// thread that waits for room to enqueue); the function is short and never blocks.
extern std::atomic<LookAgain (*)() noexcept> while_waiting;

// How the state of a waiting thread changes. begins: it starts to call while_waiting repeatedly.
// ends: its wait is over, and its next wait probably follows soon. hands_over: the thread that
// handles messages otherwise takes over, because this thread goes to sleep or runs a task; also
// called by threads that were not looking.
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
