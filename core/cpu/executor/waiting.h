// Waiting: how long a thread looks before it sleeps, and when a wait has taken too long.
#pragma once
#include <chrono>
#include <string>

#include "core/cpu/executor/node.h"
#include "core/device/wait_clock.h"

namespace shmap::cpu {

using Clock = std::chrono::steady_clock;

// How long a thread looks for work, or for its event, before it sleeps: about what waking costs.
constexpr auto kSpin = std::chrono::microseconds(30);
// So too, where it may come from another process, whose message this thread itself takes. From
// kSpin on it gives its core to whoever wants it.
constexpr auto kSpinForOthers = std::chrono::microseconds(300);

// What the executor's threads run at the moment, but for this one: ", running: …"; "" for nothing.
std::string running_tasks(const Executor& executor);

// Of one wait, by the executor's options: warns once when it takes long, throws when it takes too
// long.
class Deadline {
 public:
  explicit Deadline(const Executor& executor) noexcept;
  // Called now and then by the thread that waits; `node` is what for, null where for all tasks.
  // Throws DeviceError where it may and time is up, unless under a debugger, which stops time.
  void check(const Node* node, bool may_throw = true);

 private:
  std::string text(const Node* node, double sec) const;

  const Executor& executor_;
  WaitClock clock_;
};

}  // namespace shmap::cpu
