// Two tasks run as one (Task::join): if only the next task reads a task's result and waits for
// nothing else, the next task runs both.
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/graph.h"
#include "core/device/timeline.h"

namespace shmap::cpu {

Executor::Joiner Executor::joiner_of(const Node& node) noexcept {
  const void* const made = node.task.makes;
  if (made == nullptr || node.task.parts != 1) return {};
  const auto joins = [made](const Node& to) {
    return to.task.join != nullptr && to.task.takes == made;
  };
  if (const CpuGraph* graph = node.graph) {
    const CpuGraph::Edges& edges = graph->edges_[static_cast<std::size_t>(node.graph_index)];
    for (std::int32_t i = edges.first_after; i < edges.end_after; ++i) {
      Node& to = graph->nodes_[graph->after_[static_cast<std::size_t>(i)]];
      if (joins(to)) return {&to, to.blockers.load(std::memory_order_acquire) == 1};
    }
    return {};
  }
  // Successors of this node live until this node has ended, and edges are only added at the front.
  Joiner joiner;
  std::int32_t edges = 0;
  for (const Edge* e = node.successors.load(std::memory_order_acquire); e != nullptr; e = e->next) {
    if (joiner.node == nullptr && joins(*e->to)) joiner.node = e->to;
    if (e->to == joiner.node) ++edges;
  }
  joiner.ready = joiner.node != nullptr &&
                 joiner.node->blockers.load(std::memory_order_acquire) == edges &&
                 joiner.node->failure() == nullptr;
  return joiner;
}

Node* Executor::next_to_compute(bool helps) noexcept {
  // A task that can be joined once other tasks have ended may wait a little if other work is ready.
  constexpr int kLookahead = 16;
  const auto can_wait = [](const Node& node) {
    const Joiner joiner = joiner_of(node);
    return joiner.node != nullptr && !joiner.ready;
  };
  Node *node = compute_.head, *previous = nullptr;
  for (int i = 0; i < kLookahead && node != nullptr && can_wait(*node); ++i) {
    previous = node;
    node = node->ready_next;
  }
  if (node == nullptr || (previous != nullptr && can_wait(*node))) {
    node = compute_.head;
    previous = nullptr;
  }
  if (helps && node->task.foreign) return nullptr;
  if (node->next_part + 1 == node->task.parts) {
    (previous == nullptr ? compute_.head : previous->ready_next) = node->ready_next;
    if (compute_.tail == node) compute_.tail = previous;
  }
  return node;
}

void Executor::run_task(Node& node, int part) {
  const TaskContext context{part,
                            node.task.parts,
                            *node.stream,
                            nullptr,
                            node.task.later ? &node : nullptr,
                            node.graph != nullptr ? node.graph->launch_->ticket : 0};
  if (const Joiner joiner = joiner_of(node); joiner.ready) {
    Node& after = *joiner.node;
    if (after.task.join(after.task.args, node.task, context)) {
      after.joined = true;
      if (node.begin_ns.load(std::memory_order_relaxed) != 0)
        after.begin_ns.store(timeline_now(), std::memory_order_relaxed);
      return;
    }
  }
  node.task.run(node.task.args, context);
}

}  // namespace shmap::cpu
