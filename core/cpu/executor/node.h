// Node: a task in the CPU executor, with the edges to the tasks that wait for it.
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

// An edge from a task to a task that waits for it. Stored in the waiting node.
struct Edge {
  Node* to = nullptr;
  Edge* next = nullptr;
  bool data = false;  // a failure of the first task is passed to the second
};

// Made by Node::make, then given edges, then submitted; a node runs once `blockers` is 0.
// Nodes are pooled, except those of a graph, which owns them and runs them again at each launch.
class Node final : public Completion, public TaskEnd {
 public:
  Node() noexcept : Completion(nullptr) {}
  void block() override;  // Executor::wait
  void mark_reported() noexcept override;
  void dispose() noexcept override;                      // returns the node to the pool
  void end(std::exception_ptr error) noexcept override;  // for a task with `later`
  static Ref<Node> make(Executor& executor, const Task& task, Stream* stream);
  // Number of nodes in the pool and in use; it grows only while no node is free.
  static std::int64_t made() noexcept;
  void bind(Executor& executor, const Task& task, Stream* stream) noexcept;

  bool pending() const noexcept { return state() == Completion::pending; }
  Executor& executor() const noexcept { return *static_cast<Executor*>(const_cast<void*>(owner_)); }

  // Stores the first failure, which is the node's own or a predecessor's.
  void fail(Ref<Failure> failure) noexcept;
  Failure* failure() const noexcept { return failure_.load(std::memory_order_acquire); }

  Task task;
  Stream* stream = nullptr;     // the stream where it was enqueued
  std::vector<Stream*> others;  // of a group task: its other streams

  std::atomic<std::int32_t> blockers{0};  // unfinished predecessors, plus one until it is submitted
  std::atomic<std::int32_t> parts_left{0};  // parts that have not ended
  std::int32_t next_part = 0;               // the number of parts that were taken; guarded by the
                                            // executor's mutex, as parts_taken
  std::uint64_t parts_taken = 0;            // which ones, of a task of at most 64
  std::int32_t streak = 0;     // how many tasks of its stream in a row went before other streams'
                               // tasks
  Node* ready_next = nullptr;  // in a ready queue or a list of nodes made ready
  bool joined = false;         // the task before it ran this task too; written by that task's
                               // thread

  std::atomic<Edge*> successors{nullptr};  // closed() once the node has ended
  static Edge* closed() noexcept;
  void reserve_edges(std::size_t n);  // for n edges into this node; call before the first edge
  Edge* take_edge() noexcept;

  Ref<Graph> launched;        // of a launch: the graph; the node ends with the graph's last task
  std::uint64_t ticket = 0;   // the ticket of the launch
  std::int32_t begun = 0;     // how many of the graph's first tasks ended before it was submitted
  CpuGraph* graph = nullptr;  // of a graph's task: the graph
  std::int32_t graph_index = 0;           // its index in the graph
  std::atomic<std::int64_t> begin_ns{0};  // for the timeline; 0 until the node begins

  // Sets the final state; returns true if a thread sleeps until the node has ended.
  bool conclude() noexcept;
  // Announces a sleeping thread; false if the node has already ended.
  bool announce_sleeper() noexcept;

 private:
  friend class NodePool;
  std::atomic<Failure*> failure_{nullptr};  // owned
  static constexpr int kFewEdges = 6;
  static constexpr int kKeptEdges = 128;  // capacity for edges that a pooled node keeps
  Edge few_edges_[kFewEdges];
  std::unique_ptr<Edge[]> more_edges_;
  Edge* edges_ = few_edges_;
  std::int32_t n_edges_ = 0;
  std::int32_t more_capacity_ = 0;
};

}  // namespace shmap::cpu
