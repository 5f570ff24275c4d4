#include "core/cpu/executor/executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/signals_blocked.h"
#include "core/base/spin_lock.h"
#include "core/base/warning.h"
#include "core/cpu/executor/executor_follow_up.h"
#include "core/cpu/executor/graph.h"
#include "core/cpu/executor/running.h"
#include "core/cpu/executor/task_scope.h"
#include "core/cpu/executor/waiting.h"
#include "core/device/at_exit.h"
#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/timeline.h"
#include "core/processes/processes.h"
#include "core/processes/while_waiting.h"

namespace shmap::cpu {
namespace {

using std::chrono::milliseconds;

// How many tasks of one stream may run in a row before ready tasks of other streams. With a larger
// number one device of a ring falls behind the others, and its last tasks then run one after
// another on one worker while the other workers have nothing to do.
constexpr int kMaxStreak = 2;

// A waiting thread also looks for messages of other processes. While it runs a task shorter than
// this, it does not ask another thread to look.
constexpr std::int64_t kShortTaskNs = 20'000;

// Before a part of at least this length runs, a worker is woken for what else is ready. It is about
// what waking takes at most: shorter parts end before the worker would have begun.
constexpr std::int64_t kLongPartNs = std::chrono::nanoseconds(kMostSpin).count();

void record_timeline(TimelineSink& sink, const Task& task, const Stream& stream,
                     std::span<Stream* const> others, std::int64_t begin) noexcept {
  const std::int64_t end = timeline_now();
  sink.record({task.name, stream.device_index(), stream.role(), begin, end, task.bytes});
  for (const Stream* other : others) {
    sink.record({task.name, other->device_index(), other->role(), begin, end, 0});
  }
}

ExecutorOptions completed(ExecutorOptions options) {
  if (options.cores <= 0) options.cores = available_cores();
  if (options.workers <= 0) options.workers = options.cores;
  options.max_in_flight = std::max(options.max_in_flight, 8);
  return options;
}

}  // namespace

// ------------------------------------------------------------------------------------- lifetime

Executor::Executor(const ExecutorOptions& options)
    : options_(completed(options)),
      inline_below_ns_(options_.mode == Mode::inline_  ? INT64_MAX
                       : options_.mode == Mode::seeded ? INT64_MIN
                                                       : options_.inline_ns),
      random_state_(options_.seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du),
      failures_(options_.mode == Mode::seeded ? "\n  repeat with " + repro() : "") {
  watch_forks();
  threads_.reserve(static_cast<std::size_t>(options_.workers));
  if (options_.mode == Mode::seeded) reserve_ready(options_.max_in_flight + 64);
}

void Executor::reserve_ready(int more) {
  std::lock_guard lock(mutex_);
  ready_capacity_ += static_cast<std::size_t>(more);
  random_ready_.reserve(ready_capacity_);
}

Executor::~Executor() {
  if (forked()) {
    for (Worker& w : threads_) w.thread.detach();
    return;
  }
  drain();
  stop();
}

std::string Executor::repro() const {
  switch (options_.mode) {
    case Mode::inline_:
      return "SHMAP_EXECUTOR=inline";
    case Mode::seeded:
      return "SHMAP_EXECUTOR=seeded:" + std::to_string(options_.seed);
    case Mode::async:
      break;
  }
  return "";
}

// ------------------------------------------------------------------------------------- dataflow

void Executor::List::push(Node* node) noexcept {
  node->ready_next = nullptr;
  (head == nullptr ? head : tail->ready_next) = node;
  tail = node;
}

Node* Executor::List::pop() noexcept {
  Node* node = head;
  if (node != nullptr) head = node->ready_next;
  return node;
}

void Executor::add_edge(Node& before, Node& node, bool data) noexcept {
  Edge* edge = node.take_edge();
  edge->to = &node;
  edge->data = data;
  node.blockers.fetch_add(1, std::memory_order_relaxed);
  Edge* head = before.successors.load(std::memory_order_acquire);
  do {
    if (head == Node::closed()) {  // `before` ended meanwhile
      node.blockers.fetch_sub(1, std::memory_order_relaxed);
      if (Failure* failure = before.failure(); data && failure != nullptr) {
        node.fail(Ref<Failure>(failure));
      }
      return;
    }
    edge->next = head;
  } while (!before.successors.compare_exchange_weak(head, edge, std::memory_order_acq_rel,
                                                    std::memory_order_acquire));
}

void Executor::add_waits(Node& node, std::span<const Event> waits,
                         std::span<const Event> after) noexcept {
  for (const bool data : {true, false}) {
    for (const Event& e : data ? waits : after) {
      if (e.record() == nullptr || e.record()->owner() != this) continue;
      auto& before = static_cast<Node&>(*e.record());
      if (before.pending()) {
        add_edge(before, node, data);
      } else if (Failure* failure = before.failure(); data && failure != nullptr) {
        node.fail(Ref<Failure>(failure));
      }
    }
  }
}

std::size_t Executor::count_pending(std::span<const Event> events) const {
  std::size_t pending = 0;
  for (const Event& e : events) {
    if (e.done()) continue;
    if (e.record()->owner() == this) {
      ++pending;
    } else {
      e.record()->block();
    }
  }
  return pending;
}

const Event* Executor::first_failed(std::span<const Event> events) {
  const Event* first = nullptr;
  for (const Event& e : events) {
    if (!e.failed()) continue;
    if (first == nullptr) {
      first = &e;
    } else if (e.record()->error() != first->record()->error()) {
      e.record()->mark_reported();
    }
  }
  return first;
}

void Executor::submit(Node& node) noexcept {
  node.add_ref();
  in_flight_.fetch_add(1);
  if (options_.mode == Mode::async) {
    if (!detail::thread_state.stops_devices) [[unlikely]]
      detail::stop_when_main_ends();
    if (!started_.load(std::memory_order_relaxed)) start_workers();
  }
  if (node.blockers.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    List ready;
    ready.push(&node);
    make_ready(ready);
  }
}

void Executor::push_locked(Node* node, bool first) noexcept {
  ready_parts_.store(ready_parts_.load(std::memory_order_relaxed) + node->task.parts,
                     std::memory_order_relaxed);
  if (options_.mode == Mode::seeded) {
    random_ready_.push_back(node);
    return;
  }
  Queue& queue = node->stream->role() == StreamRole::comm ? comm_ : compute_;
  if (first && queue.head != nullptr) {
    node->ready_next = queue.head;
    queue.head = node;
    return;
  }
  node->ready_next = nullptr;
  (queue.head == nullptr ? queue.head : queue.tail->ready_next) = node;
  queue.tail = node;
}

void Executor::make_ready(List ready, const Stream* hot, int streak) noexcept {
  List runnable, at_once;
  while (Node* node = ready.pop()) {
    const Node* carrier = node->graph != nullptr ? node->graph->launch_ : node;
    if (carrier->failure() != nullptr) {
      skip(*node, *carrier);  // a task that it waited for failed: it does not run
      finish(node, ready);
    } else if (node->launched.get() != nullptr) {
      auto& graph = static_cast<CpuGraph&>(*node->launched);
      graph.launch_ = node;
      for (std::int32_t root : graph.reset(node->begun)) ready.push(&graph.nodes_[root]);
      if (graph.n_nodes_ == 0) finish(node, ready);
    } else if (node->task.run == nullptr || node->joined) {
      finish(node, ready);
    } else if (follows_up(*node)) {
      at_once.push(node);
    } else {
      runnable.push(node);
    }
  }
  if (runnable.head != nullptr) queue(runnable, hot, streak);
  if (at_once.head == nullptr) return;
  FollowUp follow_up(*this);
  while (Node* node = at_once.pop()) follow_up.push(node);
}

void Executor::queue(List runnable, const Stream* hot, int streak) noexcept {
  int wake = 0;
  bool helps = false, foreign = false;
  {
    std::lock_guard lock(mutex_);
    while (Node* node = runnable.pop()) {
      // A waiting thread leaves tasks that call user code to workers.
      (node->task.foreign ? foreign : helps) = true;
      const bool first = node->stream == hot && streak < kMaxStreak;
      node->streak = first ? streak + 1 : 0;
      push_locked(node, first);
    }
    // With the parts that were queued before and that nobody has taken yet: the threads that look
    // may be about to take those.
    int parts = ready_parts_.load(std::memory_order_relaxed);
    if (helps && spins_in == this) --parts;
    wake = workers_to_wake(parts, load(), !foreign && Processes::joined() == nullptr);
    begin_waking(wake);
  }
  for (; wake > 0; --wake) work_.notify_one();
}

Load Executor::load() const noexcept {
  return {.workers = options_.workers,
          .cores = options_.cores,
          .active = active_,
          .spinners = spinners_,
          .sleepers = sleepers_,
          .woken = woken_,
          .lookers = other_lookers()};
}

void Executor::begin_waking(int workers) noexcept {
  if (workers <= 0) return;
  waking_.begin(Clock::now());
  woken_ += workers;
}

bool Executor::begin_waking_for_ready() noexcept {
  if (ready_parts_.load(std::memory_order_relaxed) == 0 || sleepers_ <= woken_) return false;
  begin_waking(1);
  return true;
}

// While any thread looks, fewer workers are woken than there are parts: each thread that looks, and
// the one that made them ready, was expected to take one soon. What is left when this thread has
// taken a long part would wait for its end.
bool Executor::begin_waking_for_rest(const Part& taken) noexcept {
  const int parts = ready_parts_.load(std::memory_order_relaxed);
  const Task& task = taken.node->task;
  if (parts == 0 || task.later || task.cost_ns / task.parts < kLongPartNs) return false;
  if (workers_to_wake(parts, load(), Processes::joined() == nullptr) == 0) return false;
  begin_waking(1);
  return true;
}

void Executor::finish(Node* node, List& ready) noexcept {
  if (TimelineSink* sink = timeline_sink(); sink != nullptr) [[unlikely]] {
    const std::int64_t begin = node->begin_ns.load(std::memory_order_relaxed);
    if (begin != 0) record_timeline(*sink, node->task, *node->stream, node->others, begin);
  }
  if (node->graph != nullptr) {
    CpuGraph& graph = *node->graph;
    const CpuGraph::Edges& edges = graph.edges_[node->graph_index];
    for (std::int32_t i = edges.first_after; i < edges.end_after; ++i) {
      Node& next = graph.nodes_[graph.after_[i]];
      if (next.blockers.fetch_sub(1, std::memory_order_acq_rel) == 1) ready.push(&next);
    }
    // The last node ends the launch; after that the graph may be launched again or destroyed.
    Node* launch = graph.launch_;
    if (graph.left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    node = launch;
  }
  if (node->task.drop != nullptr) node->task.drop(node->task.args);
  node->launched.reset();  // the last reference to a graph drops its tasks here
  const bool sleeper = node->conclude();
  Edge* edge = node->successors.exchange(Node::closed(), std::memory_order_acq_rel);
  Edge* in_order = nullptr;
  while (edge != nullptr) {
    Edge* next = edge->next;
    edge->next = in_order;
    in_order = edge;
    edge = next;
  }
  Failure* const failure = node->failure();
  for (edge = in_order; edge != nullptr;) {
    Edge* next = edge->next;  // the edge lies in `to`, which may be freed once `to` is ready
    Node* to = edge->to;
    if (failure != nullptr && edge->data) to->fail(Ref<Failure>(failure));
    if (to->blockers.fetch_sub(1, std::memory_order_acq_rel) == 1) ready.push(to);
    edge = next;
  }
  const std::int64_t left = in_flight_.fetch_sub(1) - 1;
  const bool room = waiting_for_room_.load() > 0 && (left == 0 || left == low_water() - 1);
  if (sleeper || room) {
    { std::lock_guard lock(done_mutex_); }
    done_.notify_all();
  }
  Ref<Node>::adopt(node).reset();
}

// -------------------------------------------------------------------------------------- running

std::uint64_t Executor::random() noexcept {  // SplitMix64
  std::uint64_t z = random_state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The part of the node that this thread should run: the one with the number of the part that it ran
// last, whose operands are then often in its core's cache, else the first one that is left.
int Executor::own_part(Node& node) noexcept {
  static thread_local int latest = 0;
  constexpr int kMost = 64;
  if (node.task.parts > kMost || node.task.parts == 1) return node.next_part;
  if (latest >= node.task.parts || (node.parts_taken >> latest & 1u) != 0)
    latest = std::countr_one(node.parts_taken);
  node.parts_taken |= std::uint64_t{1} << latest;
  return latest;
}

bool Executor::take_part(Part& part, bool helps) noexcept {
  const int available = ready_parts_.load(std::memory_order_relaxed);
  if (available == 0) return false;
  if (options_.mode == Mode::seeded) {
    const std::size_t i = random() % random_ready_.size();
    Node* node = random_ready_[i];
    part = {node, node->next_part++, false};
    if (node->next_part == node->task.parts) {
      random_ready_[i] = random_ready_.back();
      random_ready_.pop_back();
    }
  } else {
    if (active_ >= options_.workers) return false;
    // Communication goes first, so that computation hides it, but on at most half of the workers
    // while there is something to compute.
    const bool share = 2 * active_comm_ < options_.workers;
    const bool comm = comm_.head != nullptr && (share || compute_.head == nullptr);
    Node* node = comm ? comm_.head : next_to_compute(helps && !threads_.empty());
    if (node == nullptr) return false;
    part.comm = comm;
    active_comm_ += comm;
    part.node = node;
    part.part = own_part(*node);
    ++node->next_part;
    if (comm && node->next_part == node->task.parts) comm_.head = node->ready_next;
  }
  ready_parts_.store(available - 1, std::memory_order_relaxed);
  begun_parts_.store(begun_parts_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  ++active_;
  return true;
}

void Executor::run_part(const Part& part, bool on_worker) noexcept {
  Node* node = part.node;
  Node* carrier = node->graph != nullptr ? node->graph->launch_ : node;
  if (carrier->failure() == nullptr) {
    if (timeline_sink() != nullptr) [[unlikely]] {
      std::int64_t none = 0;
      node->begin_ns.compare_exchange_strong(none, timeline_now(), std::memory_order_relaxed);
    }
    if (node->task.later) {
      if (start_later(*node, *carrier)) return;
      return end_part(node);
    }
    RunningTask running{this, &node->task, node->stream};
    if (!on_worker) running.on_worker = false;
    if (!on_worker && node->task.foreign) running.begin_ns = timeline_now();
    const RunningScope noted(running);
    if (running.begin_ns != 0) callers_.begin();
    const TaskScope scope(node->task.name);
    try {
      run_task(*node, part.part);
    } catch (...) {
      carrier->fail(make_failure(std::current_exception()));
    }
    // The process ends without this worker: the objects used below may be destroyed already.
    while (on_worker && abandoned_.load(std::memory_order_relaxed)) [[unlikely]] pause();
  } else {
    skip(*node, *carrier);
  }
  end_part(node);
}

void Executor::skip(const Node& node, const Node& carrier) noexcept {
  const std::exception_ptr& error = carrier.failure()->error;
  if (node.launched.get() != nullptr)
    static_cast<const CpuGraph&>(*node.launched).skip_from(node.begun, node.ticket, error);
  else if (node.task.skip != nullptr)
    node.task.skip(node.task.args, carrier.ticket, error);
}

void Executor::end_part(Node* node) noexcept {
  if (node->parts_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const Stream* const stream = node->stream;
  const int streak = node->streak;
  List ready;
  finish(node, ready);
  if (ready.head != nullptr) make_ready(ready, stream, streak);
}

Ref<Failure> Executor::run_here(const Task& task, Stream& stream, std::span<Stream* const> others,
                                std::uint64_t ticket) noexcept {
  if (task.run == nullptr) return {};
  TimelineSink* sink = timeline_sink();
  const std::int64_t begin = sink != nullptr ? timeline_now() : 0;
  Ref<Failure> failure;
  {
    RunningTask running{this, &task, &stream, 0, /*on_worker=*/false};
    std::optional<RunningScope> noted;
    if (task.foreign) {
      running.begin_ns = timeline_now();
      noted.emplace(running);
      callers_.begin();
    }
    const TaskScope scope(task.name);
    try {
      for (int part = 0; part < task.parts; ++part) {
        task.run(task.args, {part, task.parts, stream, nullptr, nullptr, ticket});
      }
    } catch (...) {
      failure = make_failure(std::current_exception());
    }
  }
  if (sink != nullptr) record_timeline(*sink, task, stream, others, begin);
  return failure;
}

bool Executor::help(const Node* until) {
  if (ready_parts_.load(std::memory_order_relaxed) == 0) return false;
  bool helped = false;
  std::unique_lock lock(mutex_);
  for (Part part; (!helped || (until != nullptr && until->pending())) && take_part(part, true);) {
    helped = true;
    const bool wake_for_rest = begin_waking_for_rest(part);
    lock.unlock();
    if (wake_for_rest) work_.notify_one();
    // Waking another thread to look for messages takes longer than a short task.
    if (part.node->task.foreign || part.node->task.cost_ns > kShortTaskNs)
      detail::hand_over_looking();
    run_part(part, /*on_worker=*/false);
    lock.lock();
    --active_;
    active_comm_ -= part.comm;
  }
  // Tasks that are still ready need another worker in place of this thread.
  const bool wake = helped && begin_waking_for_ready();
  lock.unlock();
  if (wake) work_.notify_one();
  return helped;
}

// --------------------------------------------------------------------------------------- errors

Event Executor::failed_event(Ref<Failure> failure) {
  Ref<Node> node = Node::make(*this, Task(), nullptr);
  node->fail(std::move(failure));
  node->successors.store(Node::closed(), std::memory_order_relaxed);
  node->conclude();
  return Event(std::move(node));
}

}  // namespace shmap::cpu
