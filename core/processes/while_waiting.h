// The work of a thread that waits for a device, besides running tasks: it handles messages of other
// processes, which would otherwise wait until the thread that handles them gets a core. A process
// that has joined no others has nothing to do.
#pragma once
#include <cstdint>

namespace shmap {

class Exchanges;

namespace detail {

// Whether a waiting thread has a reason to call look_around again.
enum class LookAgain : std::uint8_t {
  no_reason,
  soon,      // it may wait for data of another process
  yielding,  // likewise, and the processes share cores: the other process may need this thread's
             // core
  moved,     // data has come, or another process has taken this one's: more may follow soon
};

// Called often, by any thread that holds no lock except the submit mutex (a thread that waits for
// room to enqueue); short, and never blocks.
LookAgain look_around() noexcept;

// True if exchanges are under way that wait for nothing but room for their messages at other
// processes, as far as is known. Any thread.
bool room_is_awaited() noexcept;

// True if exchanges with other processes are under way. They have deadlines of their own. Any
// thread.
bool others_are_awaited() noexcept;

// Changes in the state of a waiting thread. begins: the thread starts to call look_around
// repeatedly. ends: its wait is over, and its next wait probably follows soon. hands_over: the
// thread that handles messages otherwise takes over, because this thread goes to sleep or runs a
// task; also called by threads that were not looking.
enum class Looking : std::uint8_t { begins, ends, ends_and_hands_over, hands_over };

// A thread's wait, from Looking::begins to Looking::ends; ends_and_hands_over after hand_over().
class ActiveWait {
 public:
  ActiveWait() noexcept;
  ~ActiveWait();
  ActiveWait(const ActiveWait&) = delete;
  ActiveWait& operator=(const ActiveWait&) = delete;
  void hand_over() noexcept { hands_over_ = true; }

 private:
  Exchanges* const exchanges_;  // null: this process had joined no others when the wait began
  bool hands_over_ = false;
};

// This thread is about to run a task instead of looking.
void hand_over_looking() noexcept;

}  // namespace detail
}  // namespace shmap
