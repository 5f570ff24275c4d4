// Capture and graph of the CPU backend.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/cpu/executor/node.h"
#include "core/device/capture.h"
#include "core/device/graph.h"

namespace shmap::cpu {

class CpuStream;
class Executor;

struct Capture {
  explicit Capture(Executor* e) noexcept : executor(e) {}
  Executor* executor;
  CaptureLog<CapturedTask<CpuStream>> log;
};

class CpuGraph final : public Graph {
 public:
  CpuGraph(Executor& executor, Capture& capture);  // takes ownership of its tasks' args
  ~CpuGraph() override;

  int nodes() const noexcept override { return n_nodes_; }
  int edges() const noexcept override { return static_cast<int>(after_.size()); }
  std::int64_t cost_ns() const noexcept override { return cost_ns_; }
  std::vector<GraphTask> tasks() const override;
  Event launch(std::span<const Event> waits, std::span<const Event> after,
               std::uint64_t ticket) override;

 private:
  friend class Executor;
  struct Edges {
    std::int32_t blockers;     // number of predecessors
    std::int32_t first_after;  // successors: after_[first_after, end_after)
    std::int32_t end_after;
  };
  bool streams_are_quiet() const noexcept;
  void let_exchanges_end() const noexcept;
  Event run_in_order(std::uint64_t ticket);
  // Works like run_in_order until the attempt of a task with `later` does not end that task; the
  // rest of the graph is then submitted.
  Event attempt_in_order(std::uint64_t ticket);
  // Tells the tasks from the first-th on that this launch does not run them (Task::skip).
  void skip_from(int first, std::uint64_t ticket, const std::exception_ptr& error) const noexcept;
  Ref<Failure> run_plain(const Node& node, std::uint64_t ticket) noexcept;
  Ref<Node> launch_node(std::uint64_t ticket, std::size_t pending, std::int32_t begun);
  // Prepares the nodes for another run, without the first `begun` nodes, which have ended. Returns
  // the nodes that wait for no other node. The previous launch must have ended.
  std::span<const std::int32_t> reset(std::int32_t begun) noexcept;

  Executor& executor_;
  int n_nodes_ = 0;
  std::int64_t cost_ns_ = 0;
  std::int64_t own_cost_ns_ = 0;   // without tasks that only start something (Task::later)
  bool attempts_ = false;          // whether the tasks with `later` are few and all can be
                                   // attempted
  std::unique_ptr<Node[]> nodes_;  // in the order of capture, which is a topological one
  std::vector<Edges> edges_;
  std::vector<std::int32_t> after_;
  std::vector<std::int32_t> roots_;
  std::vector<std::int32_t> roots_of_rest_;
  std::vector<CpuStream*> streams_;
  std::atomic<std::int32_t> left_{0};  // nodes of the current run that have not ended
  Node* launch_ = nullptr;             // the node of the current run; it carries the failure
};

}  // namespace shmap::cpu
