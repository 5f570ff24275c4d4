#include "core/cpu/executor/graph.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/spin_lock.h"
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/stream.h"
#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/task_attempt.h"
#include "core/device/task_run.h"
#include "core/device/timeline.h"
#include "core/processes/while_waiting.h"
#include "shmap/error.h"

namespace shmap::cpu {
namespace {

// Few, because an attempt may take a while (core/device/task_attempt.h) and holds the submit mutex.
constexpr int kMostAttempts = 4;

// How long a launch waits for room at other processes, which may need this thread's core or not.
constexpr std::chrono::microseconds kMostYielding{100}, kMostForRoom{5};

}  // namespace

CpuGraph::CpuGraph(Executor& executor, Capture& capture)
    : executor_(executor),
      n_nodes_(static_cast<int>(capture.log.entries().size())),
      nodes_(std::make_unique<Node[]>(capture.log.entries().size())),
      edges_(capture.log.entries().size()),
      streams_(capture.log.streams()) {
  auto& entries = capture.log.entries();
  std::vector<std::int32_t> n_after(entries.size(), 0);
  for (const auto& captured : entries) {
    for (std::int32_t b : captured.before) ++n_after[static_cast<std::size_t>(b)];
  }
  std::int32_t total = 0;
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    edges_[i].first_after = edges_[i].end_after = total;
    total += n_after[i];
  }
  after_.resize(static_cast<std::size_t>(total));
  roots_.reserve(edges_.size());
  roots_of_rest_.reserve(edges_.size());
  int laters = 0;
  bool all_attempted = true;
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    auto& captured = entries[i];
    for (std::int32_t b : captured.before) {
      after_[static_cast<std::size_t>(edges_[static_cast<std::size_t>(b)].end_after++)] =
          static_cast<std::int32_t>(i);
    }
    edges_[i].blockers = static_cast<std::int32_t>(captured.before.size());
    if (captured.before.empty()) roots_.push_back(static_cast<std::int32_t>(i));
    cost_ns_ += captured.task.cost_ns;
    if (captured.task.later) {
      ++laters;
      all_attempted = all_attempted && may_attempt(captured.task);
    } else {
      own_cost_ns_ += captured.task.cost_ns;
    }
    nodes_[i].others.assign(captured.streams.begin() + 1, captured.streams.end());
  }
  attempts_ =
      executor_.mode() == Mode::async && laters > 0 && laters <= kMostAttempts && all_attempted;
  if (executor_.mode() == Mode::seeded) executor_.reserve_ready(n_nodes_);
  for (std::size_t i = 0; i < edges_.size(); ++i) {  // nothing fails from here on
    auto& captured = entries[i];
    nodes_[i].bind(executor_, captured.task, captured.streams.front());
    nodes_[i].graph = this;
    nodes_[i].graph_index = static_cast<std::int32_t>(i);
    captured.task.drop = nullptr;
  }
}

CpuGraph::~CpuGraph() {
  for (int i = 0; i < n_nodes_; ++i) {
    const Task& task = nodes_[static_cast<std::size_t>(i)].task;
    if (task.drop != nullptr) task.drop(task.args);
  }
}

std::vector<GraphTask> CpuGraph::tasks() const {
  std::vector<GraphTask> all(edges_.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Node& node = nodes_[i];
    all[i].name = node.task.name;
    all[i].streams.push_back(node.stream);
    all[i].streams.insert(all[i].streams.end(), node.others.begin(), node.others.end());
    for (std::int32_t k = edges_[i].first_after; k < edges_[i].end_after; ++k)
      all[static_cast<std::size_t>(after_[static_cast<std::size_t>(k)])].after.push_back(
          static_cast<int>(i));
  }
  return all;
}

std::span<const std::int32_t> CpuGraph::reset(std::int32_t begun) noexcept {
  left_.store(n_nodes_ - begun, std::memory_order_relaxed);
  for (std::int32_t i = begun; i < n_nodes_; ++i) {
    Node& node = nodes_[static_cast<std::size_t>(i)];
    node.blockers.store(edges_[static_cast<std::size_t>(i)].blockers, std::memory_order_relaxed);
    node.parts_left.store(node.task.parts, std::memory_order_relaxed);
    node.next_part = 0;
    node.parts_taken = 0;
    node.joined = false;
    node.begin_ns.store(0, std::memory_order_relaxed);
  }
  if (begun == 0) return roots_;
  for (std::int32_t i = 0; i < begun; ++i) {
    const Edges& edges = edges_[static_cast<std::size_t>(i)];
    for (std::int32_t k = edges.first_after; k < edges.end_after; ++k)
      nodes_[static_cast<std::size_t>(after_[static_cast<std::size_t>(k)])].blockers.fetch_sub(
          1, std::memory_order_relaxed);
  }
  roots_of_rest_.clear();
  for (std::int32_t i = begun; i < n_nodes_; ++i)
    if (nodes_[static_cast<std::size_t>(i)].blockers.load(std::memory_order_relaxed) == 0)
      roots_of_rest_.push_back(i);
  return roots_of_rest_;
}

Ref<Failure> CpuGraph::run_plain(const Node& node, std::uint64_t ticket) noexcept {
  std::exception_ptr error = run_as_task(node.task.name, detail::thread_state, [&] {
    for (int part = 0; part < node.task.parts; ++part)
      node.task.run(node.task.args,
                    {part, node.task.parts, *node.stream, nullptr, nullptr, ticket});
  });
  return error == nullptr ? Ref<Failure>() : executor_.make_failure(std::move(error));
}

void CpuGraph::skip_from(int first, std::uint64_t ticket,
                         const std::exception_ptr& error) const noexcept {
  for (int i = first; i < n_nodes_; ++i) {
    const Task& task = nodes_[static_cast<std::size_t>(i)].task;
    if (task.skip != nullptr) task.skip(task.args, ticket, error);
  }
}

Event CpuGraph::run_in_order(std::uint64_t ticket) {
  const bool plain = timeline_sink() == nullptr;
  for (int i = 0; i < n_nodes_; ++i) {
    const Node& node = nodes_[static_cast<std::size_t>(i)];
    Ref<Failure> failure = !plain || node.task.run == nullptr || node.task.foreign
                               ? executor_.run_here(node.task, *node.stream, node.others, ticket)
                               : run_plain(node, ticket);
    if (failure.get() != nullptr) {
      skip_from(i + 1, ticket, failure->error);
      return executor_.failed_event(std::move(failure));
    }
  }
  return Event();
}

Event CpuGraph::attempt_in_order(std::uint64_t ticket) {
  for (int i = 0; i < n_nodes_; ++i) {
    const Node& node = nodes_[static_cast<std::size_t>(i)];
    Ref<Failure> failure;
    if (node.task.later) {
      bool ended = true;
      std::exception_ptr error = run_as_task(node.task.name, detail::thread_state, [&] {
        ended = attempt(node.task, *node.stream, ticket);
      });
      if (error != nullptr) failure = executor_.make_failure(std::move(error));
      if (!ended) {
        Ref<Node> whole = launch_node(ticket, 0, /*begun=*/i);
        executor_.submit_and_follow_up(*whole);
        executor_.interleave();
        return Event(std::move(whole));
      }
    } else if (node.task.run == nullptr || node.task.foreign) {
      failure = executor_.run_here(node.task, *node.stream, node.others, ticket);
    } else {
      failure = run_plain(node, ticket);
    }
    if (failure.get() != nullptr) {
      skip_from(i + 1, ticket, failure->error);
      return executor_.failed_event(std::move(failure));
    }
  }
  return Event();
}

// Makes the node of one launch, which runs after all earlier tasks of the graph's streams.
Ref<Node> CpuGraph::launch_node(std::uint64_t ticket, std::size_t pending, std::int32_t begun) {
  Task whole;
  whole.name = "graph";
  Stream* first = n_nodes_ > 0 ? nodes_[0].stream : nullptr;
  Ref<Node> node = Node::make(executor_, whole, first);
  node->launched = Ref<Graph>(this);
  node->ticket = ticket;
  node->begun = begun;
  node->reserve_edges(streams_.size() + pending);
  for (CpuStream* s : streams_) {
    if (s->last_.get() != nullptr) executor_.add_edge(*s->last_, *node, /*data=*/false);
    s->last_ = node;
  }
  return node;
}

bool CpuGraph::streams_are_quiet() const noexcept {
  return std::ranges::all_of(streams_, [](CpuStream* s) { return s->quiet(); });
}

// A caller that needs nothing of other processes, as the root of broadcasts, runs ahead of them
// until they have no room for its messages. Launches that queue behind such an exchange take longer
// than launches that are attempted, and take the others' cores. So a launch lets the exchanges end
// first, if room is all that they need.
void CpuGraph::let_exchanges_end() const noexcept {
  if (streams_are_quiet()) return;
  const auto begin = Clock::now();
  for (;;) {
    const detail::LookAgain again = detail::look_around();
    if (streams_are_quiet() || !detail::room_is_awaited()) return;
    const bool crowded = again == detail::LookAgain::yielding;
    if (Clock::now() - begin > (crowded ? kMostYielding : kMostForRoom)) return;
    if (crowded)
      std::this_thread::yield();
    else
      for (int i = 0; i < 64; ++i) cpu_relax();
  }
}

Event CpuGraph::launch(std::span<const Event> waits, std::span<const Event> after,
                       std::uint64_t ticket) {
  // A graph may run on the calling thread for longer than a single task may: on workers, each of
  // its nodes would cost a turn in the queues.
  constexpr std::int64_t kInlineFactor = 2;
  if (capturing()) throw Error("launching a graph while this thread captures another");
  if (in_task()) {
    throw Error("launching a graph inside the task '" + std::string(detail::thread_state.task) +
                "'");
  }
  if (forked()) throw_forked();
  if (attempts_) let_exchanges_end();
  const std::size_t pending = executor_.count_pending(waits) + executor_.count_pending(after);
  const bool quiet = streams_are_quiet();
  // A failed event stands for the launch only where nothing else is pending: the caller gives
  // memory back when the launch's event is done.
  const Event* const failed = Executor::first_failed(waits);
  if (failed != nullptr && pending == 0 && quiet) {
    skip_from(0, ticket, failed->record()->error());
    return *failed;
  }
  if (executor_.mode() == Mode::inline_ && (pending > 0 || !quiet)) {
    throw Error("launching a graph in inline mode, but what it waits for is not done");
  }
  if (n_nodes_ == 0 && pending == 0) return Event();
  if (cost_ns_ / kInlineFactor <= executor_.inline_below_ns() && pending == 0 && quiet) {
    return run_in_order(ticket);
  }
  executor_.make_room();
  if (attempts_ && own_cost_ns_ / kInlineFactor <= executor_.inline_below_ns() && pending == 0 &&
      quiet && timeline_sink() == nullptr)
    return attempt_in_order(ticket);
  Ref<Node> node = launch_node(ticket, pending, /*begun=*/0);
  executor_.add_waits(*node, waits, after);
  if (own_cost_ns_ / kInlineFactor <= executor_.inline_below_ns() && pending == 0 && quiet) {
    executor_.submit_and_follow_up(*node);
  } else {
    executor_.submit(*node);
  }
  executor_.interleave();
  return Event(std::move(node));
}

}  // namespace shmap::cpu
