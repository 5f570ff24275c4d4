// FollowUp runs tasks on the thread that started or ended a task with `later`, such as the addition
// after an exchange with other processes. Waking a worker for them would take longer.
#pragma once
#include <cstdint>

#include "core/cpu/executor/executor.h"

namespace shmap::cpu {

// Its destructor runs the tasks that were pushed. A FollowUp inside another one of the same
// executor leaves its tasks to the outer one, so that a chain of exchanges that end at once is a
// loop and not a recursion.
class Executor::FollowUp {
 public:
  explicit FollowUp(Executor& executor) noexcept;
  ~FollowUp();
  FollowUp(const FollowUp&) = delete;
  FollowUp& operator=(const FollowUp&) = delete;

  void push(Node* node) noexcept { list_->push(node); }
  // True if the time budget has room for a task of this cost; the cost is then subtracted. The
  // budget keeps a thread that has other work from staying here for long.
  bool takes(std::int64_t cost_ns) noexcept;
  const Executor& executor() const noexcept { return executor_; }

  static thread_local FollowUp* innermost;  // one for each thread

 private:
  Executor& executor_;
  FollowUp* const outer_;
  List own_list_;
  List* list_ = &own_list_;
  std::int64_t budget_ns_;
};

}  // namespace shmap::cpu
