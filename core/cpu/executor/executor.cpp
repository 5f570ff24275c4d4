#include "core/cpu/executor/executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/signals_blocked.h"
#include "core/base/spin_lock.h"
#include "core/base/warning.h"
#include "core/cpu/device/graph.h"
#include "core/cpu/executor/executor_follow_up.h"
#include "core/cpu/executor/running.h"
#include "core/cpu/executor/task_scope.h"
#include "core/cpu/executor/waiting.h"
#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/runtime.h"
#include "core/device/timeline.h"
#include "core/device/while_waiting.h"

namespace shmap::cpu {
namespace {

using std::chrono::milliseconds;

// How many more tasks of a stream run before those of others that are ready. With many of them a
// ring of devices ends with the tasks of one that was left behind, one after another on one worker.
constexpr int kMaxStreak = 2;

// A thread that looks for messages and runs a task of less than that leaves them alone meanwhile.
constexpr std::int64_t kShortTaskNs = 20'000;

void record_timeline(TimelineSink& sink, const Task& task, const Stream& stream,
                     std::span<Stream* const> others, std::int64_t begin) noexcept {
  const std::int64_t end = timeline_now();
  sink.record({task.name, stream.device_index(), stream.role(), begin, end, task.bytes});
  for (const Stream* other : others) {
    sink.record({task.name, other->device_index(), other->role(), begin, end, 0});
  }
}

ExecutorOptions completed(ExecutorOptions options) {
  options.cores = available_cores();
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

void Executor::start_workers() {
  if (started_.exchange(true)) return;
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  const SignalsBlocked blocked;
  try {
    threads_.reserve(static_cast<std::size_t>(options_.workers));
    for (int i = 0; i < options_.workers; ++i) {
      Worker& w = threads_.emplace_back();
      w.thread = std::thread([this, &w] { worker(w); });
    }
  } catch (const std::bad_alloc&) {
    if (!threads_.empty() && !threads_.back().thread.joinable()) threads_.pop_back();
    if (threads_.empty()) started_.store(false);  // the next task tries again
  } catch (const std::system_error& e) {
    threads_.pop_back();
    // Fewer will do; none would leave what nobody waits for undone.
    if (threads_.empty()) {
      char text[256];
      std::snprintf(text, sizeof text,
                    "no worker thread could be started (%s): tasks run while their results are "
                    "waited for",
                    e.what());
      warn(text);
    }
  }
}

bool Executor::stop() noexcept {
  callers_.stop();
  std::vector<Worker> workers;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    stopped_.store(true);
    workers.swap(threads_);
  }
  work_.notify_all();
  wait_for_workers(workers);
  bool all_left = true;
  std::unique_lock lock(mutex_);
  for (Worker& w : workers) {
    const bool self = w.thread.get_id() == std::this_thread::get_id();  // a task ends the process
    if (!w.left) {
      all_left = all_left && self;
      // Its place among the workers is its own from now on.
      w.thread.detach();
    }
  }
  lock.unlock();
  for (Worker& w : workers) {
    if (w.thread.joinable()) w.thread.join();
  }
  if (!all_left) new std::vector<Worker>(std::move(workers));  // a worker holds on to its place
  return all_left;
}

void Executor::wait_for_workers(const std::vector<Worker>& workers) noexcept {
  const auto all_left = [&] {
    return std::ranges::all_of(workers, [](const Worker& w) {
      return w.left || w.thread.get_id() == std::this_thread::get_id();
    });
  };
  WaitClock clock(options_.warn_sec, options_.timeout_sec);
  std::unique_lock lock(mutex_);
  while (!left_.wait_for(lock, milliseconds(50), all_left)) {
    const WaitClock::Due due = clock.look();
    if (due == WaitClock::Due::nothing) continue;
    const bool late = due == WaitClock::Due::failure;
    if (late) abandoned_.store(true);
    lock.unlock();
    try {
      warn("the process is about to end, and waits for its workers since " +
           fmt::format("{:.1f}", clock.seconds()) + " s" + running_tasks(*this) +
           (late ? "\n  It ends without them now (SHMAP_COLLECTIVE_TIMEOUT_SEC)."
                 : " (SHMAP_COLLECTIVE_WARN_SEC)"));
    } catch (const std::bad_alloc&) {
      warn("the process is about to end, and a worker's task has not ended");
    }
    lock.lock();
    if (late) return;
  }
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
    if (head == Node::closed()) {  // it ended meanwhile
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
  int parts = 0;
  while (Node* node = ready.pop()) {
    const Node* carrier = node->graph != nullptr ? node->graph->launch_ : node;
    if (carrier->failure() != nullptr) {
      finish(node, ready);  // what it waited for failed: it does not run
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
      parts += node->task.parts;
    }
  }
  if (runnable.head != nullptr) queue(runnable, parts, hot, streak);
  if (at_once.head == nullptr) return;
  FollowUp follow_up(*this);
  while (Node* node = at_once.pop()) follow_up.push(node);
}

void Executor::queue(List runnable, int parts, const Stream* hot, int streak) noexcept {
  int wake = 0;
  {
    std::lock_guard lock(mutex_);
    while (Node* node = runnable.pop()) {
      const bool first = node->stream == hot && streak < kMaxStreak;
      node->streak = first ? streak + 1 : 0;
      push_locked(node, first);
    }
    wake = std::min({parts - spinners_, sleepers_, options_.workers - active_});
  }
  for (; wake > 0; --wake) work_.notify_one();
}

void Executor::finish(Node* node, List& ready) noexcept {
  if (TimelineSink* sink = timeline_sink(); sink != nullptr) [[unlikely]] {
    const std::int64_t begin = node->begin_ns.load(std::memory_order_relaxed);
    if (begin != 0) record_timeline(*sink, node->task, *node->stream, node->others, begin);
  }
  if (node->graph != nullptr) {
    CpuGraph& graph = *node->graph;
    const CpuGraph::Place& place = graph.places_[node->graph_index];
    for (std::int32_t i = place.first_after; i < place.end_after; ++i) {
      Node& next = graph.nodes_[graph.after_[i]];
      if (next.blockers.fetch_sub(1, std::memory_order_acq_rel) == 1) ready.push(&next);
    }
    // The last one ends the launch; after that the graph may run again or be gone.
    Node* launch = graph.launch_;
    if (graph.left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    node = launch;
  }
  if (node->task.drop != nullptr) node->task.drop(node->task.args);
  node->launched.reset();  // a graph that nobody holds any more drops its tasks now
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
    Edge* next = edge->next;  // the edge lives in its node, which may be gone once it is let go
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
    // Communication first, but on half of the workers at most while there is something to compute:
    // it is there to be hidden behind that, as copy engines would.
    const bool share = 2 * active_comm_ < options_.workers;
    const bool comm = comm_.head != nullptr && (share || compute_.head == nullptr);
    Node* node = comm ? comm_.head : next_to_compute(helps && !threads_.empty());
    if (node == nullptr) return false;
    part.comm = comm;
    active_comm_ += comm;
    part.node = node;
    part.part = node->next_part++;
    if (comm && node->next_part == node->task.parts) comm_.head = node->ready_next;
  }
  ready_parts_.store(available - 1, std::memory_order_relaxed);
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
    // Much of what follows may be destroyed already.
    while (on_worker && abandoned_.load(std::memory_order_relaxed)) [[unlikely]] pause();
  }
  end_part(node);
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
  bool wake = false;
  std::unique_lock lock(mutex_);
  for (Part part; (!helped || (until != nullptr && until->pending())) && take_part(part, true);) {
    helped = true;
    lock.unlock();
    // What is as short as a look at messages is no reason for another thread to wake up.
    if (part.node->task.foreign || part.node->task.cost_ns > kShortTaskNs)
      detail::hand_over_looking();
    run_part(part, /*on_worker=*/false);
    lock.lock();
    --active_;
    active_comm_ -= part.comm;
  }
  // What is ready and left is for another to take this thread's place.
  if (helped) wake = ready_parts_.load(std::memory_order_relaxed) > 0 && sleepers_ > 0;
  lock.unlock();
  if (wake) work_.notify_one();
  return helped;
}

void Executor::worker(Worker& self) noexcept {
  const int max_spinners = std::min(options_.workers, options_.cores) - 1;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Part part;
    if (take_part(part, false)) {
      lock.unlock();
      run_part(part, /*on_worker=*/true);
      lock.lock();
      --active_;
      active_comm_ -= part.comm;
      continue;
    }
    if (ready_parts_.load(std::memory_order_relaxed) == 0 && spinners_ < max_spinners) {
      ++spinners_;
      lock.unlock();
      const auto until = Clock::now() + kSpin;
      while (ready_parts_.load(std::memory_order_relaxed) == 0 && Clock::now() < until) {
        for (int i = 0; i < 32; ++i) cpu_relax();
      }
      lock.lock();
      --spinners_;
      if (ready_parts_.load(std::memory_order_relaxed) > 0 || stopping_) continue;
    }
    ++sleepers_;
    work_.wait(lock);
    --sleepers_;
  }
  self.left = true;
  left_.notify_all();
}

// -------------------------------------------------------------------------------------- waiting

// Looks until it ended, there is something to run, or it has taken too long to go on like that:
// true for the latter, and then it has handed over.
bool Executor::spin(const Node& node) noexcept {
  detail::ActiveWait active;
  const auto begin = Clock::now();
  const auto yields_after =
      std::chrono::nanoseconds(yields_after_ns_.load(std::memory_order_relaxed));
  bool yielded = false;
  while (node.pending() && ready_parts_.load(std::memory_order_relaxed) == 0) {
    const detail::LookAgain again = detail::look_around();
    const bool others = again != detail::LookAgain::no_reason;
    if (others && !node.pending()) {
      learn_to_yield(yielded);
      return false;
    }
    const auto waited = Clock::now() - begin;
    if (waited > (others ? kSpinForOthers : kSpin)) break;
    if (again == detail::LookAgain::yielding || (others && waited > yields_after)) {
      yielded = true;
      std::this_thread::yield();
    } else {
      for (int i = 0; i < (others ? 2 : 32); ++i) cpu_relax();
    }
  }
  const bool too_long = node.pending() && ready_parts_.load(std::memory_order_relaxed) == 0;
  if (too_long) active.hand_over();
  return too_long;
}

// What comes while this thread offers its core comes from a process that may share the core, and
// waits for it: then the next wait offers it sooner.
void Executor::learn_to_yield(bool yielded) noexcept {
  constexpr std::int64_t kLeast = 2000, kMost = std::chrono::nanoseconds(kSpin).count();
  const std::int64_t ns = yields_after_ns_.load(std::memory_order_relaxed);
  yields_after_ns_.store(yielded ? std::max(ns / 2, kLeast) : std::min(ns * 2, kMost),
                         std::memory_order_relaxed);
}

void Executor::wait(Node& node) {
  if (forked()) throw_forked();
  Deadline deadline(*this);
  // Without workers nobody else may run what becomes ready later: look often.
  const bool alone = options_.mode != Mode::async;
  while (node.pending()) {
    if (ready_parts_.load(std::memory_order_relaxed) != 0 && help(&node)) continue;
    const bool handed_over = spin(node);
    if (!node.announce_sleeper()) break;
    if (!handed_over) detail::hand_over_looking();
    const auto slice = milliseconds(alone || stopped_.load() ? 1 : 50);
    {
      std::unique_lock lock(done_mutex_);
      done_.wait_for(lock, slice, [&] { return !node.pending(); });
    }
    deadline.check(&node);
  }
}

void Executor::make_room() {
  if (options_.mode == Mode::seeded) {
    int turns = 0;
    {
      std::lock_guard lock(mutex_);
      turns = static_cast<int>(random() % 4) - 1;
    }
    for (; turns > 0 && help(); --turns) {
    }
  }
  if (in_flight_.load(std::memory_order_relaxed) < options_.max_in_flight) return;
  Deadline deadline(*this);
  waiting_for_room_.fetch_add(1);
  while (in_flight_.load() >= low_water()) {
    if (help()) continue;
    {
      std::unique_lock lock(done_mutex_);
      done_.wait_for(lock, milliseconds(options_.mode == Mode::async ? 20 : 1),
                     [&] { return in_flight_.load() < low_water(); });
    }
    try {
      deadline.check(nullptr);
    } catch (...) {
      waiting_for_room_.fetch_sub(1);
      throw;
    }
  }
  waiting_for_room_.fetch_sub(1);
}

void Executor::drain() {
  waiting_for_room_.fetch_add(1);
  while (in_flight_.load() > 0) {
    if (help()) continue;
    std::unique_lock lock(done_mutex_);
    done_.wait_for(lock, milliseconds(20), [&] { return in_flight_.load() == 0; });
  }
  waiting_for_room_.fetch_sub(1);
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
