// Node: a task in the CPU executor, with what it waits for and what waits for it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/event.h"
#include "core/device/failure_log.h"
#include "core/device/graph.h"
#include "core/device/stream.h"

namespace shmap::cpu {

class CpuGraph;
class Executor;
class Node;

// A link from a task to one that waits for it. Lives in the waiting node.
struct Edge {
  Node* to = nullptr;
  Edge* next = nullptr;
  bool data = false;  // a failure travels along it; else it only orders
};

// A node is made by Executor::make_node, given edges, and submitted; it runs once `blockers` is 0.
// Nodes are pooled. Those of a graph belong to it and run again at each launch.
class Node final : public Completion, public TaskEnd {
 public:
  Node() noexcept : Completion(nullptr) {}
  void block() override;  // Executor::wait
  void mark_reported() noexcept override;
  void dispose() noexcept override;                      // back to the pool
  void end(std::exception_ptr error) noexcept override;  // of a task with `later`
  static Ref<Node> make(Executor& executor, const Task& task, Stream* stream);
  // Nodes that the pool holds or has given out: it grows only while no node is free.
  static std::int64_t made() noexcept;
  void bind(Executor& executor, const Task& task, Stream* stream) noexcept;

  bool pending() const noexcept { return state() == Completion::pending; }
  Executor& executor() const noexcept { return *static_cast<Executor*>(const_cast<void*>(owner_)); }

  // Remembers the first failure; it is the node's own, or one it inherits.
  void fail(Ref<Failure> failure) noexcept;
  Failure* failure() const noexcept { return failure_.load(std::memory_order_acquire); }

  Task task;
  Stream* stream = nullptr;     // where it was enqueued
  std::vector<Stream*> others;  // of a group task: the other streams that it is in

  std::atomic<std::int32_t> blockers{0};  // unfinished predecessors, and one until it is submitted
  std::atomic<std::int32_t> parts_left{0};  // parts that have not ended
  std::int32_t next_part = 0;               // guarded by the executor's mutex
  std::int32_t streak = 0;     // how many before it in its stream went before other streams'
  Node* ready_next = nullptr;  // in a ready queue or a list of nodes made ready
  bool joined = false;         // the task before it did its work: written by that one's thread

  std::atomic<Edge*> successors{nullptr};  // closed() once it ended
  static Edge* closed() noexcept;
  void reserve_edges(std::size_t n);  // storage for n edges into this node, before the first
  Edge* take_edge() noexcept;

  Ref<Graph> launched;        // of a launch: the graph; the node ends with its last task
  std::uint64_t ticket = 0;   // and what it was given
  std::int32_t begun = 0;     // how many of the graph's first tasks ended before it was submitted
  CpuGraph* graph = nullptr;  // of a graph's task: the graph
  std::int32_t graph_index = 0;           // and its place in it
  std::atomic<std::int64_t> begin_ns{0};  // for the timeline; 0 where it has not begun

  // Sets the state that it ends with; returns true where somebody sleeps on it.
  bool conclude() noexcept;
  // Announces a sleeper; false where it ended already.
  bool announce_sleeper() noexcept;

 private:
  friend class NodePool;
  std::atomic<Failure*> failure_{nullptr};  // owned
  static constexpr int kFewEdges = 6;
  static constexpr int kKeptEdges = 128;  // a pooled node keeps room for this many
  Edge few_edges_[kFewEdges];
  std::unique_ptr<Edge[]> more_edges_;
  Edge* edges_ = few_edges_;
  std::int32_t n_edges_ = 0;
  std::int32_t more_capacity_ = 0;
};

}  // namespace shmap::cpu
