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
  CpuGraph(Executor& executor, Capture& capture);  // takes the args of its tasks
  ~CpuGraph() override;

  int nodes() const noexcept override { return n_nodes_; }
  int edges() const noexcept override { return static_cast<int>(after_.size()); }
  std::int64_t cost_ns() const noexcept override { return cost_ns_; }
  std::vector<GraphTask> tasks() const override;
  Event launch(std::span<const Event> waits, std::span<const Event> after,
               std::uint64_t ticket) override;

 private:
  friend class Executor;
  struct Place {
    std::int32_t blockers;     // predecessors
    std::int32_t first_after;  // its successors in after_
    std::int32_t end_after;
  };
  Event run_in_order(std::uint64_t ticket);
  // As run_in_order, up to an attempt of a task with `later` that does not end it: from there on
  // the tasks are submitted.
  Event attempt_in_order(std::uint64_t ticket);
  Ref<Failure> run_plain(const Node& node, std::uint64_t ticket) noexcept;
  Ref<Node> launch_node(std::uint64_t ticket, std::size_t pending, std::int32_t begun);
  // For one more run, without the first `begun` nodes, which have ended; returns those that wait
  // for nothing. Called where the launch before has ended.
  std::span<const std::int32_t> reset(std::int32_t begun) noexcept;

  Executor& executor_;
  int n_nodes_ = 0;
  std::int64_t cost_ns_ = 0;
  std::int64_t own_cost_ns_ = 0;   // without tasks that only start something (Task::later)
  bool attempts_ = false;          // those tasks may all be attempted, and are few
  std::unique_ptr<Node[]> nodes_;  // in the order of capture, which is a topological one
  std::vector<Place> places_;
  std::vector<std::int32_t> after_;
  std::vector<std::int32_t> roots_;
  std::vector<std::int32_t> roots_of_rest_;
  std::vector<CpuStream*> streams_;
  std::atomic<std::int32_t> left_{0};  // nodes of this run that have not ended
  Node* launch_ = nullptr;             // the node of this run; it carries the failure
};

}  // namespace shmap::cpu
