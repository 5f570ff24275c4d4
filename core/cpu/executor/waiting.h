// Waiting: how long a thread looks before it sleeps, and when a wait has taken too long.
#pragma once
#include <chrono>
#include <string>

#include "core/base/wait_clock.h"
#include "core/cpu/executor/node.h"

namespace shmap::cpu {

using Clock = std::chrono::steady_clock;

// The time that a thread looks for work, or for its event, before it sleeps: about what waking
// costs.
constexpr auto kSpin = std::chrono::microseconds(30);
// The time to look if the event may come from another process, whose message the waiting thread
// takes itself. After kSpin the thread begins to yield its core.
constexpr auto kSpinForOthers = std::chrono::microseconds(300);
// The time to look if the processes share cores. The thread then offers its core after each look.
constexpr auto kSpinAmongMany = std::chrono::microseconds(1000);
// The most time that one look counts if the thread offered its core and another thread used it.
constexpr auto kMostOfLook = std::chrono::microseconds(2);

// The tasks that the executor's other threads run at the moment, as text: ", running: …". "" if
// there are none.
std::string running_tasks(const Executor& executor);

// The deadlines of one wait, from the executor's options: warns once when it takes long, throws
// when it takes too long.
class Deadline {
 public:
  explicit Deadline(const Executor& executor) noexcept;
  // The waiting thread calls this now and then; `node` is what it waits for, null for all tasks.
  // Throws DeviceError when the time is up. Under a debugger the time stands still.
  void check(const Node* node);

 private:
  std::string text(const Node* node, double sec) const;

  const Executor& executor_;
  WaitClock clock_;
};

}  // namespace shmap::cpu
