#include "cuda/backend/stream.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#include <string>

#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/task_args.h"
#include "core/device/timeline.h"
#include "cuda/backend/backend.h"
#include "cuda/device/completion.h"
#include "cuda/device/running_task.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

// A named range of host time that profilers show (NVTX); does nothing where the toolkit lacks the
// header.
class NamedRange {
 public:
#ifdef NVTX_VERSION
  explicit NamedRange(const char* name) noexcept { nvtxRangePushA(name); }
  ~NamedRange() { nvtxRangePop(); }
#else
  explicit NamedRange(const char*) noexcept {}
#endif
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

// The group task that this thread runs outside of captures.
class GroupRun {
 public:
  // apart: the streams of the group do not wait for each other.
  explicit GroupRun(Queue& leader, bool apart = false) noexcept
      : leader_(leader), apart_(apart), outer_(running) {
    running = this;
  }
  ~GroupRun() { running = outer_; }
  GroupRun(const GroupRun&) = delete;
  GroupRun& operator=(const GroupRun&) = delete;

  cudaStream_t member(Queue& queue) {
    if (&queue == &leader_ || apart_) return queue.stream();
    for (const Queue* known : members_) {
      if (known == &queue) return queue.stream();
    }
    members_.push_back(&queue);
    queue.pass_gate();
    if (!start_) start_ = mark(leader_);
    wait(queue, *start_);
    return queue.stream();
  }
  // Makes the leader's stream wait for the work that the members got.
  void join() {
    for (Queue* queue : members_) wait(leader_, *mark(*queue));
  }

  static thread_local constinit GroupRun* running;

 private:
  static Ref<Mark> mark(Queue& queue) {
    auto mark = make_ref<Mark>(Ref<EventPool>(&queue.events()), 0u);
    check(cudaEventRecord(mark->event(), queue.stream()), "cudaEventRecord");
    return mark;
  }
  static void wait(Queue& queue, const Mark& mark) {
    check(cudaStreamWaitEvent(queue.stream(), mark.event(), 0), "cudaStreamWaitEvent");
  }
  Queue& leader_;
  const bool apart_;
  GroupRun* const outer_;
  std::vector<Queue*> members_;
  Ref<Mark> start_;
};

thread_local constinit GroupRun* GroupRun::running = nullptr;

}  // namespace

cudaStream_t native_in_group(Stream& member) {
  auto& stream = static_cast<CudaStream&>(member);
  if (Capture* capture = capture_of_thread()) return capture->member(stream);
  if (GroupRun::running != nullptr) return GroupRun::running->member(stream.queue());
  throw Error("native_in_group: this thread runs no group task");
}

std::vector<std::pair<int, StreamRole>> places_of(std::span<CudaStream* const> streams) {
  std::vector<std::pair<int, StreamRole>> places;
  for (const CudaStream* s : streams) places.emplace_back(s->device_index(), s->role());
  return places;
}

Event CudaStream::enqueue(const Task& task, std::span<const Event> waits,
                          std::span<const Event> after) {
  CudaStream* self = this;
  return backend_.submit({&self, 1}, task, waits, after);
}

bool CudaStream::runs_at_once(std::int64_t /*cost_ns*/,
                              const detail::ThreadState& thread) noexcept {
  return calls_at_enqueue(thread);
}

// False while this thread captures: the nodes of a graph may read the args later.
bool CudaStream::calls_at_enqueue(const detail::ThreadState& thread) noexcept {
  return thread.capture == nullptr && thread.task == nullptr && !forked();
}

Event CudaStream::record() {
  if (Capture* capture = capture_of_thread()) return capture->record(*this);
  if (queue_->idle()) return Event();
  const Point last = queue_->last();
  return TaskCompletion::make(&backend_, last.queue, last.number, Ref<Failure>());
}

bool CudaStream::idle() noexcept { return !capturing() && queue_->idle(); }

Event CudaBackend::enqueue_group(std::span<Stream* const> streams, const Task& task,
                                 std::span<const Event> waits) {
  std::vector<CudaStream*> mine;
  {
    TaskArgs args(task);
    if (streams.empty()) throw ValueError("enqueue_group: no stream was given");
    mine.reserve(streams.size());
    for (Stream* s : streams) mine.push_back(static_cast<CudaStream*>(s));
    args.release();
  }
  return submit(mine, task, waits, {});
}

std::vector<Event> CudaBackend::enqueue_each(std::span<Stream* const> streams, const Task& given,
                                             std::span<const TaskWaits> waits) {
  std::vector<CudaStream*> mine;
  std::vector<Event> events;
  TaskArgs args(given);
  for (Stream* s : streams) mine.push_back(static_cast<CudaStream*>(s));
  events.reserve(mine.size());
  if (mine.size() == 1) {
    args.release();
    events.push_back(submit(mine, given, waits[0].data, waits[0].order));
    return events;
  }
  Task task = given;
  if (task.parts < 1) task.parts = 1;
  check_enqueues(task);
  if (Capture* capture = capture_of_thread()) {
    args.release();
    return capture->add_each(mine, task, waits);
  }
  Ref<Failure> failure;
  for (const TaskWaits& some : waits)
    if (!failure) failure = inherited_failure(this, some.data);
  std::vector<int> pending;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    Queue& queue = mine[i]->queue();
    queue.pass_gate();
    pending.push_back(add_waits(queue, waits[i].data) + add_waits(queue, waits[i].order));
  }
  const bool failed = static_cast<bool>(failure);
  if (!failed) {
    const GpuScope gpu(mine.front()->queue().gpu());
    const bool timed = timeline_sink() != nullptr;
    std::vector<Span> spans;
    for (std::size_t i = 0; timed && i < mine.size(); ++i)
      spans.push_back(spans_.begin(task, mine[i]->queue().gpu(), places_of({&mine[i], 1}),
                                   mine[i]->queue().stream(), false));
    {
      GroupRun group(mine.front()->queue(), /*apart=*/true);
      failure = run(task, *mine.front(), mine.front()->queue().stream());
    }
    for (std::size_t i = 0; i < spans.size(); ++i) {
      spans_.end(spans[i], mine[i]->queue().stream(), false);
      spans_.add(std::move(spans[i]));
    }
  }
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (failed && pending[i] == 0) {  // its stream may not even exist
      events.push_back(TaskCompletion::failed(this, failure));
      continue;
    }
    const std::uint64_t number = mine[i]->queue().append(task.name);
    events.push_back(TaskCompletion::make(this, Ref<Queue>(&mine[i]->queue()), number, failure));
  }
  return events;
}

void CudaBackend::check_enqueues(const Task& task) const {
  const detail::ThreadState& thread = detail::thread_state;
  if (thread.task != nullptr) {
    throw Error("enqueueing '" + std::string(task.name) + "' inside the task '" + thread.task +
                "': a kernel or callback cannot start others; it has no trace and no stream");
  }
  if (forked()) throw_forked();
  health_->check(task.name);
}

Event CudaBackend::submit(std::span<CudaStream* const> streams, const Task& given,
                          std::span<const Event> waits, std::span<const Event> after) {
  TaskArgs args(given);
  Task task = given;
  if (task.name == nullptr) task.name = "";
  if (task.parts < 1) task.parts = 1;
  check_enqueues(task);
  if (Capture* capture = capture_of_thread()) {
    if (&capture->backend() != this) {
      throw Error("enqueueing '" + std::string(task.name) +
                  "' on a backend other than the one that this thread captures");
    }
    args.release();
    return capture->add(streams, task, waits, after);
  }

  Queue& queue = streams.front()->queue();
  Ref<Failure> failure = inherited_failure(this, waits);
  // A task that fails because of an event it waits for is put into the stream as an empty task: its
  // event must not end before earlier tasks have finished with its memory.
  queue.pass_gate();
  const int pending = add_waits(queue, waits) + add_waits(queue, after);
  if (failure && pending == 0) return TaskCompletion::failed(this, std::move(failure));
  for (CudaStream* s : streams.subspan(1)) s->queue().be_awaited_by(queue);
  if (!failure && task.run != nullptr) failure = run_in(streams, task);
  const std::uint64_t number = queue.append(task.name);
  for (CudaStream* s : streams.subspan(1)) s->queue().close_gate(queue, number);
  return TaskCompletion::make(this, Ref<Queue>(&queue), number, std::move(failure));
}

Ref<Failure> CudaBackend::run_in(std::span<CudaStream* const> streams, const Task& task) {
  Queue& queue = streams.front()->queue();
  const GpuScope gpu(queue.gpu());
  const bool timed = timeline_sink() != nullptr;
  Span span;
  if (timed)
    span = spans_.begin(task, queue.gpu(), places_of(streams), queue.stream(), /*captured=*/false);
  Ref<Failure> failure;
  if (streams.size() == 1) {
    failure = run(task, *streams.front(), queue.stream());
  } else {
    GroupRun group(queue);
    failure = run(task, *streams.front(), queue.stream());
    group.join();
  }
  if (timed) {
    spans_.end(span, queue.stream(), /*captured=*/false);
    spans_.add(std::move(span));
  }
  return failure;
}

int CudaBackend::add_waits(Queue& queue, std::span<const Event> waits) {
  int pending = 0;
  for (const Event& e : waits) {
    if (e.known_done()) continue;
    if (e.record()->owner() != this) {
      e.record()->block();  // another backend's event cannot notify this backend
      continue;
    }
    const auto& before = static_cast<const TaskCompletion&>(*e.record());
    queue.wait_for(*before.queue(), before.number());
    ++pending;
  }
  return pending;
}

Ref<Failure> CudaBackend::run(const Task& task, Stream& stream, cudaStream_t native) noexcept {
  const char* outer = std::exchange(detail::thread_state.task, task.name);
  const Capture* const capture = capture_of_thread();
  const RunningTask running(*health_, capture != nullptr && capture->graph_of_each_gpu());
  Ref<Failure> failure;
  const NamedRange range(task.name);
  try {
    for (int part = 0; part < task.parts; ++part) {
      task.run(task.args, {part, task.parts, stream, native});
    }
    check(cudaGetLastError(), "a CUDA call of the task");
  } catch (...) {
    failure = health_->failures().add(std::current_exception());
    if (detail::thread_state.capture == nullptr) {
      // If the error is sticky the GPU is lost; otherwise the error concerns only this task.
      const cudaError_t code = cudaStreamQuery(native);
      if (is_sticky(code)) {
        health_->poison(code, ("enqueueing '" + std::string(task.name) + "'").c_str());
      }
      if (code != cudaSuccess) cudaGetLastError();
    }
  }
  detail::thread_state.task = outer;
  return failure;
}

}  // namespace shmap::cuda
