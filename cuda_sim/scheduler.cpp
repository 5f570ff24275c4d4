// The scheduler: work runs when a thread waits or queries, in a random order among the ready work.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runtime.h"

namespace shmap_sim {
namespace {

constexpr std::size_t kMostQueued = 20000;

enum class Step { ran, busy, remote, idle };  // remote: other processes must act first

bool waits_done(Op& op) {
  while (!op.waits.empty()) {
    if (op.waits.back()->state != Op::State::done) return false;
    op.waits.pop_back();
  }
  return true;
}

bool may_run(const Work& work) { return work.may_run == nullptr || work.may_run(); }

// For work whose predecessors are done: true if the work, or a node of the graph, may start without
// waiting for another process.
bool may_run(const Op& op) {
  if (op.graph == nullptr) return may_run(*op.work);
  const GraphRun& run = *op.graph;
  return run.ready.empty() || std::any_of(run.ready.begin(), run.ready.end(), [&](int node) {
           return may_run(*run.graph->nodes[static_cast<std::size_t>(node)].work);
         });
}

bool ready(const Stream& stream) {
  Op& op = *stream.queue.front();
  return op.state == Op::State::queued && waits_done(op);
}

// The stream whose first work must run before any other work that `op` needs; null where `op` runs.
Stream* first_needed(const std::shared_ptr<Op>& op) {
  Op* wanted = op.get();
  for (;;) {
    const std::shared_ptr<Stream> stream = wanted->stream.lock();
    Op& head = *stream->queue.front();
    if (head.state == Op::State::running) return nullptr;
    if (waits_done(head)) return stream.get();
    wanted = head.waits.back().get();
  }
}

void finish(Runtime& r, Stream& stream, const std::shared_ptr<Op>& op) {
  op->state = Op::State::done;
  op->time = std::chrono::steady_clock::now();
  op->waits.clear();
  op->graph.reset();
  stream.queue.pop_front();
  --r.queued;
  if (stream.queue.empty()) {
    stream.active = false;
    const auto at = std::find_if(r.active.begin(), r.active.end(),
                                 [&](const auto& s) { return s.get() == &stream; });
    std::swap(*at, r.active.back());
    r.active.pop_back();  // may be the last owner of a destroyed stream
  }
}

// Runs one piece of work with the lock released. The first work of its stream must be marked as
// running.
void run_work(Runtime& r, Lock& lock, const Work& work) {
  const int device = work.device;
  if (const std::shared_ptr<Event> event = work.event.lock()) {
    event->op = std::make_shared<Op>();
    event->op->state = Op::State::done;
    event->op->time = std::chrono::steady_clock::now();
    event->capture = nullptr;
    event->tails.clear();
    return;
  }
  if (work.run == nullptr || r.devices[device]->lost != cudaSuccess) return;
  if (r.logging) r.executed.push_back(work.name);
  cudaError_t error = cudaSuccess;
  if (!r.kernel_faults.empty() &&
      (work.kind == Work::Kind::kernel || work.kind == Work::Kind::custom)) {
    error = fault_of_work(r, work.name);
  }
  if (error == cudaSuccess) {
    const bool on_host = work.kind == Work::Kind::host;
    if (!on_host) {
      r.executing = true;
      // Drivers, and NCCL too, copy through the host between GPUs without peer access.
      const bool everywhere = work.kind == Work::Kind::memcpy || work.kind == Work::Kind::custom;
      if (r.protect) expose_memory(r, everywhere ? -1 : device);
    }
    if (work.kind == Work::Kind::kernel) ++r.launches;
    ++r.running;
    lock.unlock();
    this_thread.in_callback = true;
    try {
      error = work.run();
    } catch (const std::exception& e) {
      complain("the work '" + work.name + "' threw: " + e.what());
      error = cudaErrorLaunchFailure;
    }
    this_thread.in_callback = false;
    lock.lock();
    --r.running;
    if (!on_host) {
      if (r.protect) hide_memory(r);
      r.executing = false;
    }
  }
  if (error != cudaSuccess) {
    complain("'" + work.name + "' failed on device " + std::to_string(device) + ": " +
             cudaGetErrorString(error) + "; the device is lost");
    if (r.devices[device]->lost == cudaSuccess) r.devices[device]->lost = error;
  }
}

// Runs one node of a launched graph. Returns whether it was the last.
bool run_node(Runtime& r, Lock& lock, GraphRun& run) {
  if (!run.ready.empty()) {
    const std::size_t n = run.ready.size();
    std::size_t at = r.draw() % n;
    for (std::size_t i = 0; i < n && !may_run(*run.graph->nodes[run.ready[at]].work); ++i)
      at = (at + 1) % n;
    const int node = run.ready[at];
    run.ready[at] = run.ready.back();
    run.ready.pop_back();
    run_work(r, lock, *run.graph->nodes[node].work);
    for (const int next : run.successors[node]) {
      if (--run.blockers[next] == 0) run.ready.push_back(next);
    }
  }
  return run.ready.empty();
}

bool needs_the_gpu(const Op& op) {
  return op.graph != nullptr || (op.work->run != nullptr && op.work->kind != Work::Kind::host);
}

void run_head(Runtime& r, Lock& lock, Stream& stream) {
  const std::shared_ptr<Op> op = stream.queue.front();
  const std::shared_ptr<Stream> keep = op->stream.lock();
  op->state = Op::State::running;
  if (op->graph != nullptr) {
    if (!run_node(r, lock, *op->graph)) {
      op->state = Op::State::queued;
      r.progress.notify_all();
      return;
    }
  } else {
    run_work(r, lock, *op->work);
  }
  finish(r, stream, op);
  r.progress.notify_all();
}

// Runs the first work of one ready stream: a random stream, or the one that `op` needs first.
Step step(Runtime& r, Lock& lock, const std::shared_ptr<Op>& op) {
  if (r.active.empty()) return r.running > 0 ? Step::busy : Step::idle;
  Stream* chosen = nullptr;
  if (op != nullptr) {
    chosen = first_needed(op);
    if (chosen != nullptr && !may_run(*chosen->queue.front())) return Step::remote;
  } else {
    bool remote = false;
    const std::size_t n = r.active.size();
    const std::size_t start = r.draw() % n;
    for (std::size_t i = 0; i < n && chosen == nullptr; ++i) {
      Stream* stream = r.active[(start + i) % n].get();
      if (!ready(*stream)) continue;
      if (may_run(*stream->queue.front()))
        chosen = stream;
      else
        remote = true;
    }
    if (chosen == nullptr && remote) return Step::remote;
  }
  if (chosen == nullptr || (r.executing && needs_the_gpu(*chosen->queue.front()))) {
    return r.running > 0 ? Step::busy : Step::idle;
  }
  run_head(r, lock, *chosen);
  return Step::ran;
}

}  // namespace

bool is_done(const Ops& ops) {
  return std::all_of(ops.begin(), ops.end(),
                     [](const auto& op) { return op->state == Op::State::done; });
}

Ops pending(const Runtime& r, int device) {
  Ops result;
  for (const auto& stream : r.active) {
    if (stream->device == device) result.push_back(stream->queue.back());
  }
  return result;
}

std::shared_ptr<Op> push(Runtime& r, Stream& stream, std::shared_ptr<const Work> work, Ops waits) {
  auto op = std::make_shared<Op>();
  op->work = std::move(work);
  op->waits = std::move(waits);
  op->stream = stream.shared_from_this();
  // The default stream waits for the blocking streams of its device, and they wait for it.
  if (stream.legacy) {
    for (const auto& [handle, other] : r.streams) {
      if (other->device == stream.device && (other->flags & cudaStreamNonBlocking) == 0 &&
          !other->queue.empty()) {
        op->waits.push_back(other->queue.back());
      }
    }
  } else if ((stream.flags & cudaStreamNonBlocking) == 0) {
    const auto& legacy = *r.devices[stream.device]->legacy;
    if (!legacy.queue.empty()) op->waits.push_back(legacy.queue.back());
  }
  stream.queue.push_back(op);
  ++r.queued;
  if (!stream.active) {
    stream.active = true;
    r.active.push_back(stream.shared_from_this());
  }
  return op;
}

void wait_for(Runtime& r, Lock& lock, const Ops& ops) {
  // One wait in three runs only the work that it needs, so that other streams fall behind.
  const bool lazy = r.draw() % 3 == 0;
  for (;;) {
    const auto left = std::find_if(ops.begin(), ops.end(),
                                   [](const auto& op) { return op->state != Op::State::done; });
    if (left == ops.end()) return;
    Step did = step(r, lock, lazy ? *left : nullptr);
    // The work that the other process waits for may be in another stream of this process.
    if (did == Step::remote && lazy) did = step(r, lock, nullptr);
    if (did == Step::ran) continue;
    if (did == Step::remote) {
      r.progress.wait_for(lock, std::chrono::microseconds(100));
      continue;
    }
    if (did == Step::idle) {
      complain("work waits for work that nobody can run: a fault of the simulator");
      std::abort();
    }
    r.progress.wait(lock);
  }
}

void poll(Runtime& r, Lock& lock) {
  std::uint64_t n = r.draw() % 4;
  // Much work goes on while a program sleeps between two queries, which it does in long waits.
  constexpr std::size_t kMuch = 32;
  if (r.queued >= kMuch) n += r.draw() % (r.queued / kMuch + 1);
  for (; n > 0; --n) {
    if (step(r, lock, nullptr) != Step::ran) return;
  }
}

void run_in_background() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Runs until the process ends, since other processes may wait for its remaining work.
    std::thread([] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        Runtime& r = runtime();
        Lock lock(r.mutex);
        poll(r, lock);
      }
    }).detach();
  });
}

void drain_if_full(Runtime& r, Lock& lock) {
  if (r.queued <= kMostQueued) return;
  while (r.queued > kMostQueued / 2) {
    if (step(r, lock, nullptr) != Step::ran) return;
  }
}

}  // namespace shmap_sim
