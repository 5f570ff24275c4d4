// FollowUp: the tasks that a thread runs itself after a task with `later` has started or ended,
// such as the addition after an exchange with other processes. A worker would have to wake up for
// them.
#pragma once
#include <cstdint>

#include "core/cpu/executor/executor.h"

namespace shmap::cpu {

// Runs at its end what was pushed meanwhile. Inside of another of the same executor it leaves that
// to the outer one: a chain of exchanges that end at once is a loop, and no recursion.
class Executor::FollowUp {
 public:
  explicit FollowUp(Executor& executor) noexcept;
  ~FollowUp();
  FollowUp(const FollowUp&) = delete;
  FollowUp& operator=(const FollowUp&) = delete;

  void push(Node* node) noexcept { list_->push(node); }
  // Whether there is time left for a task of that cost, which then is used up: a thread that has
  // something else to do is not kept long.
  bool takes(std::int64_t cost_ns) noexcept;
  const Executor& executor() const noexcept { return executor_; }

  static thread_local FollowUp* innermost;  // of this thread

 private:
  Executor& executor_;
  FollowUp* const outer_;
  List own_list_;
  List* list_ = &own_list_;
  std::int64_t budget_ns_;
};

}  // namespace shmap::cpu
