#include "cuda/capture.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/plan_memory.h"
#include "core/device/timeline.h"
#include "cuda/backend.h"
#include "cuda/error.h"
#include "cuda/gpus.h"
#include "cuda/stream.h"
#include "shmap/error.h"

namespace shmap::cuda {

// ------------------------------------------------------------------------------- shadow streams

ShadowStreams::~ShadowStreams() { close(); }

void ShadowStreams::close() noexcept {
  std::lock_guard lock(mutex_);
  if (!forked()) {
    for (auto& [key, streams] : free_) {
      for (cudaStream_t stream : streams) note(cudaStreamDestroy(stream));
    }
  }
  free_.clear();
}

cudaStream_t ShadowStreams::take(int gpu, int priority) {
  {
    std::lock_guard lock(mutex_);
    std::vector<cudaStream_t>& free = free_[{gpu, priority}];
    if (!free.empty()) {
      cudaStream_t stream = free.back();
      free.pop_back();
      return stream;
    }
  }
  const GpuScope scope(gpu);
  const UncapturedCalls uncaptured;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority");
  return stream;
}

void ShadowStreams::give(int gpu, int priority, cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) cudaGetLastError();
  if (status == cudaStreamCaptureStatusNone) {
    try {
      std::lock_guard lock(mutex_);
      return free_[{gpu, priority}].push_back(stream);
    } catch (const std::bad_alloc&) {  // then it is not kept
    }
  }
  note(cudaStreamDestroy(stream));
}

// -------------------------------------------------------------------------------------- capture

void CapturedEvent::block() {
  throw Error(
      "waiting for a task that is being captured: it runs when the graph is launched; wait for the "
      "event of the launch");
}

Capture::~Capture() {
  abandon();
  for (Captured& node : nodes_) {
    if (node.task.drop != nullptr) node.task.drop(node.task.args);
    if (node.event) node.event->end_of_capture();
    if (node.span.begin != nullptr) backend_->spans().give_back(node.span);
  }
}

std::vector<CudaStream*> Capture::streams() const {
  std::vector<CudaStream*> all;
  for (const Last& l : last_) all.push_back(l.stream);
  return all;
}

Event Capture::add(std::span<CudaStream* const> streams, const Task& task,
                   std::span<const Event> waits) {
  Captured node;
  const auto index = static_cast<std::int32_t>(nodes_.size());
  try {
    for (CudaStream* s : streams) {
      for (const Last& l : last_) {
        if (l.stream == s) node.before.push_back(l.index);
      }
    }
    for (const Event& e : waits) {
      if (e.failed()) std::rethrow_exception(e.error());
      if (e.done()) continue;
      if (e.record()->owner() == this) {
        node.before.push_back(static_cast<const CapturedEvent&>(*e.record()).index());
        continue;
      }
      // Enqueued before the capture: what is recorded comes after it if the host waits for it now.
      e.record()->block();
      if (e.failed()) std::rethrow_exception(e.error());
    }
    std::ranges::sort(node.before);
    node.before.erase(std::unique(node.before.begin(), node.before.end()), node.before.end());
    node.streams.assign(streams.begin(), streams.end());
    node.event = make_ref<CapturedEvent>(this, index);
    node.task = task;
    node.task.drop = nullptr;
    const detail::CaptureMemory* memory = detail::thread_state.memory;
    if (memory == nullptr || !memory->rehearses()) record_task(node);
    last_.reserve(last_.size() + streams.size());
    nodes_.push_back(std::move(node));
  } catch (...) {
    if (task.drop != nullptr) task.drop(task.args);
    throw;
  }
  nodes_.back().task.drop = task.drop;
  for (CudaStream* s : streams) {
    const auto known = std::ranges::find(last_, s, &Last::stream);
    if (known != last_.end()) {
      known->index = index;
    } else {
      last_.push_back({s, index});
    }
  }
  return Event(nodes_.back().event);
}

void Capture::record_task(Captured& node) {
  node.lane = lane_of(*node.streams.front());
  come_after(node.lane, node.before);
  members_.assign(1, node.lane);
  const GpuScope gpu(node.streams.front()->queue().gpu());
  const bool timed = timeline_sink() != nullptr;
  cudaStream_t native = lane(node.lane).shadow;
  if (timed) node.span = backend_->spans().begin(node.task, node.streams, native, true);
  const Ref<Failure> failure = backend_->run(node.task, *node.streams.front(), native);
  for (std::size_t m = 1; m < members_.size(); ++m) come_after(node.lane, *mark(members_[m]));
  members_.clear();
  if (timed) backend_->spans().end(node.span, native, true);
  if (failure) {
    if (timed) backend_->spans().give_back(std::exchange(node.span, Span()));
    failure->reported.store(true, std::memory_order_relaxed);
    std::rethrow_exception(failure->error);
  }
  node.mark = mark(node.lane);
}

std::int32_t Capture::lane_of(CudaStream& stream) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].stream == &stream) return static_cast<std::int32_t>(i);
  }
  const Queue& queue = stream.queue();
  lanes_.reserve(lanes_.size() + 1);
  cudaStream_t shadow = backend_->shadows().take(queue.gpu(), queue.priority());
  const auto index = static_cast<std::int32_t>(lanes_.size());
  try {
    if (index == 0) {
      check(cudaStreamBeginCapture(shadow, cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCapture");
    }
  } catch (...) {
    backend_->shadows().give(queue.gpu(), queue.priority(), shadow);
    throw;
  }
  lanes_.push_back({&stream, shadow});
  if (index == 0) {
    start_ = mark(0);
  } else {
    come_after(index, *start_);
  }
  return index;
}

Ref<Mark> Capture::mark(std::int32_t at) {
  const Lane& from = lane(at);
  auto mark = make_ref<Mark>(Ref<EventPool>(&from.stream->queue().events()), 0u);
  check(cudaEventRecord(mark->event(), from.shadow), "cudaEventRecord in a capture");
  return mark;
}

void Capture::come_after(std::int32_t at, const Mark& mark) {
  check(cudaStreamWaitEvent(lane(at).shadow, mark.event(), 0), "cudaStreamWaitEvent in a capture");
}

void Capture::come_after(std::int32_t at, const std::vector<std::int32_t>& tasks) {
  for (std::int32_t task : tasks) {
    const Captured& before = nodes_[static_cast<std::size_t>(task)];
    if (before.lane != at) come_after(at, *before.mark);
  }
}

cudaStream_t Capture::member(CudaStream& stream) {
  const std::int32_t at = lane_of(stream);
  if (std::ranges::find(members_, at) == members_.end()) {
    come_after(at, *mark(members_.front()));
    members_.push_back(at);
  }
  return lane(at).shadow;
}

Event Capture::record(CudaStream& stream) {
  const auto known = std::ranges::find(last_, &stream, &Last::stream);
  return known == last_.end() ? Event()
                              : Event(nodes_[static_cast<std::size_t>(known->index)].event);
}

cudaGraph_t Capture::finish() {
  if (ended_ || lanes_.empty()) return nullptr;
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    come_after(0, *mark(static_cast<std::int32_t>(i)));
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t code = end_recording(&graph);
  if (code != cudaSuccess) {
    if (graph != nullptr) note(cudaGraphDestroy(graph));
    throw_cuda_error(code, "cudaStreamEndCapture");
  }
  return graph;
}

cudaError_t Capture::end_recording(cudaGraph_t* graph) noexcept {
  ended_ = true;
  const cudaError_t code = cudaStreamEndCapture(lanes_.front().shadow, graph);
  if (code != cudaSuccess) cudaGetLastError();
  for (const Lane& l : lanes_) {
    const Queue& queue = l.stream->queue();
    backend_->shadows().give(queue.gpu(), queue.priority(), l.shadow);
  }
  start_.reset();
  for (Captured& node : nodes_) node.mark.reset();
  return code;
}

void Capture::abandon() noexcept {
  if (ended_ || lanes_.empty()) return;
  try {
    // Streams that never came back would not leave the capture.
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      come_after(0, *mark(static_cast<std::int32_t>(i)));
    }
  } catch (...) {  // a capture that an error has ended already
  }
  cudaGraph_t graph = nullptr;
  note(end_recording(&graph));
  if (graph != nullptr) note(cudaGraphDestroy(graph));
}

}  // namespace shmap::cuda
