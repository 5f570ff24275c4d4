#include "core/cpu/executor/node.h"

#include <mutex>
#include <utility>

#include "core/base/spin_lock.h"
#include "core/cpu/executor/executor.h"

namespace shmap::cpu {

// One pool in the process, never destroyed: events may outlive every backend.
class NodePool {
 public:
  Node* take() {
    {
      std::lock_guard lock(lock_);
      if (free_ != nullptr) return std::exchange(free_, free_->ready_next);
    }
    Node* node = new Node;
    made_.fetch_add(1, std::memory_order_relaxed);
    return node;
  }
  void give(Node* node) noexcept {
    node->task = Task();
    node->others.clear();
    if (node->more_capacity_ > Node::kKeptEdges) {
      node->more_edges_.reset();
      node->more_capacity_ = 0;
    }
    node->edges_ = node->few_edges_;
    node->n_edges_ = 0;
    node->launched.reset();
    node->error_ = nullptr;
    if (Failure* failure = node->failure_.exchange(nullptr, std::memory_order_acq_rel)) {
      Ref<Failure>::adopt(failure).reset();
    }
    std::lock_guard lock(lock_);
    node->ready_next = free_;
    free_ = node;
  }

 private:
  friend class Node;
  SpinLock lock_;
  Node* free_ = nullptr;
  std::atomic<std::int64_t> made_{0};
};

namespace {
NodePool& node_pool() {
  static NodePool* pool = new NodePool;
  return *pool;
}
Edge closed_edge;  // only its address is used
}  // namespace

Edge* Node::closed() noexcept { return &closed_edge; }

Ref<Node> Node::make(Executor& executor, const Task& task, Stream* stream) {
  Node* node = node_pool().take();
  node->bind(executor, task, stream);
  return Ref<Node>(node);
}

std::int64_t Node::made() noexcept { return node_pool().made_.load(std::memory_order_relaxed); }

void Node::bind(Executor& executor, const Task& t, Stream* s) noexcept {
  owner_ = &executor;
  word_.store(Completion::pending, std::memory_order_relaxed);
  task = t;
  stream = s;
  blockers.store(1, std::memory_order_relaxed);
  parts_left.store(t.parts, std::memory_order_relaxed);
  next_part = 0;
  parts_taken = 0;
  joined = false;
  successors.store(nullptr, std::memory_order_relaxed);
  begin_ns.store(0, std::memory_order_relaxed);
}

void Node::dispose() noexcept { node_pool().give(this); }

void Node::end(std::exception_ptr error) noexcept { executor().ended(*this, std::move(error)); }

void Node::block() { executor().wait(*this); }

void Node::mark_reported() noexcept {
  if (Failure* f = failure()) f->reported.store(true, std::memory_order_relaxed);
}

void Node::fail(Ref<Failure> failure) noexcept {
  Failure* none = nullptr;
  if (failure_.compare_exchange_strong(none, failure.get(), std::memory_order_acq_rel)) {
    failure.detach();
  } else if (none != failure.get()) {
    failure->reported.store(true, std::memory_order_relaxed);  // synchronize() reports only the
                                                               // first failure
  }
}

void Node::reserve_edges(std::size_t n) {
  if (n <= kFewEdges) return;
  if (n > static_cast<std::size_t>(more_capacity_)) {
    more_edges_ = std::make_unique<Edge[]>(n);
    more_capacity_ = static_cast<std::int32_t>(n);
  }
  edges_ = more_edges_.get();
}

Edge* Node::take_edge() noexcept { return &edges_[n_edges_++]; }

bool Node::conclude() noexcept {
  const Failure* f = failure();
  if (f != nullptr) error_ = f->error;
  const std::uint32_t before = word_.exchange(f != nullptr ? Completion::failed : Completion::done,
                                              std::memory_order_acq_rel);
  return (before & kWaiter) != 0;
}

bool Node::announce_sleeper() noexcept {
  std::uint32_t word = word_.load(std::memory_order_acquire);
  while ((word & 3u) == Completion::pending) {
    if (word_.compare_exchange_weak(word, word | kWaiter, std::memory_order_acq_rel)) return true;
  }
  return false;
}

}  // namespace shmap::cpu
