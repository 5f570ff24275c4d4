#include "core/cpu/executor/executor_follow_up.h"

#include <utility>

#include "core/cpu/executor/graph.h"
#include "core/cpu/executor/task_scope.h"

namespace shmap::cpu {

thread_local Executor::FollowUp* Executor::FollowUp::innermost = nullptr;

Executor::FollowUp::FollowUp(Executor& executor) noexcept
    : executor_(executor),
      outer_(innermost),
      budget_ns_(executor.mode() == Mode::async ? 2 * executor.inline_below_ns_ : 0) {
  if (outer_ != nullptr && &outer_->executor_ == &executor) {
    list_ = &outer_->own_list_;  // the outer FollowUp runs the nodes that are pushed
  } else {
    innermost = this;
  }
}

Executor::FollowUp::~FollowUp() {
  if (innermost != this) return;
  while (Node* node = own_list_.pop()) executor_.run_part({node, 0, false}, /*on_worker=*/false);
  innermost = outer_;
}

bool Executor::FollowUp::takes(std::int64_t cost_ns) noexcept {
  if (cost_ns > budget_ns_) return false;
  budget_ns_ -= cost_ns;
  return true;
}

void Executor::submit_and_follow_up(Node& node) noexcept {
  const FollowUp follow_up(*this);
  submit(node);
}

bool Executor::follows_up(const Node& node) const noexcept {
  if (options_.mode != Mode::async) return false;
  if (node.task.later) return true;  // such a task only needs to be started
  FollowUp* const current = FollowUp::innermost;
  return current != nullptr && &current->executor() == this && node.task.parts == 1 &&
         !node.task.foreign && node.task.cost_ns <= inline_below_ns_ &&
         current->takes(node.task.cost_ns);
}

bool Executor::start_later(Node& node, Node& carrier) noexcept {
  const TaskScope scope(node.task.name);
  try {
    run_task(node, 0);
    return true;
  } catch (...) {
    carrier.fail(make_failure(std::current_exception()));
    return false;
  }
}

void Executor::ended(Node& node, std::exception_ptr error) noexcept {
  if (error != nullptr) {
    Node& carrier = node.graph != nullptr ? *node.graph->launch_ : node;
    carrier.fail(make_failure(std::move(error)));
  }
  ended_later_.fetch_add(1, std::memory_order_relaxed);
  const FollowUp follow_up(*this);
  end_part(&node);
}

}  // namespace shmap::cpu
