#include "core/cpu/executor/stream.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/cpu/executor/graph.h"
#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/task_args.h"
#include "core/device/task_attempt.h"
#include "core/device/task_run.h"
#include "core/device/timeline.h"
#include "shmap/error.h"

namespace shmap::cpu {
bool CpuStream::quiet() noexcept {
  if (last_.get() == nullptr) return true;
  if (last_->pending()) return false;
  last_.reset();
  return true;
}

bool CpuStream::idle() noexcept { return !capturing() && quiet(); }

bool CpuStream::runs_at_once(std::int64_t cost_ns, const detail::ThreadState& thread) noexcept {
  return thread.capture == nullptr && thread.task == nullptr &&
         cost_ns <= executor_.inline_below_ns() && quiet() && !forked();
}

bool CpuStream::overtakes(std::int64_t cost_ns, const detail::ThreadState& thread) noexcept {
  constexpr std::int64_t kTiny = 100;
  return cost_ns <= kTiny && thread.capture == nullptr && thread.task == nullptr &&
         cost_ns <= executor_.inline_below_ns() && !forked();
}

Event CpuStream::run_at_once(const Task& task, detail::ThreadState& thread) {
  const TaskArgs args(task);
  if (timeline_sink() != nullptr || task.foreign) [[unlikely]] {
    Ref<Failure> failure = executor_.run_here(task, *this, {});
    return failure.get() == nullptr ? Event() : executor_.failed_event(std::move(failure));
  }
  std::exception_ptr error = run_as_task(task.name, thread, [&] {
    for (int part = 0; part < task.parts; ++part) {
      task.run(task.args, {part, task.parts, *this, nullptr});
    }
  });
  if (error == nullptr) return Event();
  return executor_.failed_event(executor_.make_failure(std::move(error)));
}

// Runs the task's attempt on this thread. Returns nothing if no attempt was made or the attempt did
// not end the task; the caller then enqueues the task.
std::optional<Event> CpuStream::attempt_now(const Task& task, detail::ThreadState& thread) {
  if (executor_.mode() != Mode::async || thread.capture != nullptr || thread.task != nullptr ||
      timeline_sink() != nullptr || !quiet() || forked())
    return std::nullopt;
  bool ended = true;
  std::exception_ptr error =
      run_as_task(task.name, thread, [&] { ended = attempt(task, *this, 0); });
  if (!ended) return std::nullopt;
  const TaskArgs args(task);
  if (error == nullptr) return Event();
  return executor_.failed_event(executor_.make_failure(std::move(error)));
}

Event CpuStream::enqueue(const Task& task, std::span<const Event> waits,
                         std::span<const Event> after) {
  const bool ready =
      std::ranges::all_of(waits,
                          [](const Event& e) {
                            return e.record() == nullptr || e.record()->query() == Completion::done;
                          }) &&
      std::ranges::all_of(after, &Event::done);
  detail::ThreadState& thread = detail::thread_state;
  if (ready && task.run != nullptr && runs_at_once(task.cost_ns, thread))
    return run_at_once(task, thread);
  if (ready && may_attempt(task)) {
    if (std::optional<Event> ended = attempt_now(task, thread)) return *std::move(ended);
  }
  CpuStream* self = this;
  return enqueue_slow(executor_, {&self, 1}, task, waits, after);
}

Event CpuStream::enqueue_group(Executor& executor, std::span<Stream* const> streams,
                               const Task& task, std::span<const Event> waits) {
  std::vector<CpuStream*> mine;
  {
    TaskArgs args(task);
    if (streams.empty()) throw ValueError("enqueue_group: no stream was given");
    mine.reserve(streams.size());
    for (Stream* s : streams) mine.push_back(static_cast<CpuStream*>(s));
    args.release();
  }
  return enqueue_slow(executor, mine, task, waits, {});
}

Event CpuStream::enqueue_slow(Executor& executor, std::span<CpuStream* const> streams,
                              const Task& given, std::span<const Event> waits,
                              std::span<const Event> after) {
  TaskArgs args(given);
  Task task = given;
  if (task.name == nullptr) task.name = "";
  if (task.parts < 1) task.parts = 1;
  const detail::ThreadState& thread = detail::thread_state;
  if (thread.task != nullptr) {
    throw Error("enqueueing '" + std::string(task.name) + "' inside the task '" + thread.task +
                "': a kernel or callback cannot start others; it has no trace and no stream");
  }
  if (forked()) throw_forked();
  if (thread.capture != nullptr) {
    auto& capture = *static_cast<Capture*>(thread.capture);
    if (capture.executor != &executor) {
      throw Error("enqueueing '" + std::string(task.name) +
                  "' on a backend other than the one that this thread captures");
    }
    args.release();
    return capture.log.add(streams, task, waits, after, [](const auto&) {});
  }

  const std::size_t pending = executor.count_pending(waits) + executor.count_pending(after);
  // The task of a failed event is not run, and the failed event stands for it. Where other events
  // are pending, the task is enqueued and waits for them, so that its event also reports their
  // errors.
  const Event* const poison = Executor::first_failed(waits);
  if (poison != nullptr && pending == 0) {
    if (task.skip != nullptr) task.skip(task.args, 0, poison->record()->error());
    return *poison;
  }
  bool quiet = true;
  for (CpuStream* s : streams) quiet = s->quiet() && quiet;
  if (executor.mode() == Mode::inline_ && (pending > 0 || !quiet)) {
    throw Error("enqueueing '" + std::string(task.name) +
                "' in inline mode, but what it waits for is not done (SHMAP_EXECUTOR=inline runs "
                "each task at once, so nothing can be pending)");
  }
  std::vector<Stream*> others;
  if (streams.size() > 1) others.assign(streams.begin() + 1, streams.end());
  if (task.cost_ns <= executor.inline_below_ns() && pending == 0 && quiet) {
    Ref<Failure> failure = executor.run_here(task, *streams[0], others);
    return failure.get() == nullptr ? Event() : executor.failed_event(std::move(failure));
  }

  executor.make_room();
  Ref<Node> node = Node::make(executor, task, streams[0]);
  node->others = std::move(others);
  node->reserve_edges(streams.size() + pending);
  args.release();  // nothing fails from here on
  for (CpuStream* s : streams) {
    if (s->last_.get() != nullptr) executor.add_edge(*s->last_, *node, /*data=*/false);
    s->last_ = node;
  }
  executor.add_waits(*node, waits, after);
  executor.submit(*node);
  executor.interleave();
  return Event(std::move(node));
}

Event CpuStream::record() {
  const detail::ThreadState& thread = detail::thread_state;
  if (thread.capture != nullptr) return static_cast<Capture*>(thread.capture)->log.record(*this);
  if (quiet()) return Event();
  Task marker;  // the last task's own event would not do: that task may fail
  marker.name = "record";
  return enqueue(marker, {}, {});
}

}  // namespace shmap::cpu
