#include "cuda/backend/capture.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/plan_memory.h"
#include "core/device/timeline.h"
#include "cuda/backend/backend.h"
#include "cuda/backend/stream.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap::cuda {

Capture* capture_of_thread() noexcept {
  return static_cast<Capture*>(static_cast<CapturedResources*>(detail::thread_state.capture));
}

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
    } catch (const std::bad_alloc&) {  // the stream is not kept then
    }
  }
  note(cudaStreamDestroy(stream));
}

// -------------------------------------------------------------------------------------- capture

Capture::~Capture() {
  recordings_.clear();
  for (Node& node : nodes()) {
    if (node.span.begin != nullptr) backend_->spans().give_back(node.span);
  }
}

bool Capture::rehearses() {
  const detail::CaptureMemory* memory = detail::thread_state.memory;
  if (memory == nullptr || !memory->rehearses()) return false;
  return rehearsed_ = true;
}

Event Capture::add(std::span<CudaStream* const> streams, const Task& task,
                   std::span<const Event> waits, std::span<const Event> after) {
  return log_.add(streams, task, waits, after, [&](Node& node) {
    if (!rehearses()) record_task(node);
  });
}

std::vector<Event> Capture::add_each(std::span<CudaStream* const> streams, const Task& task,
                                     std::span<const TaskWaits> waits) {
  std::vector<Event> events;
  if (graph_of_each_gpu_) {
    std::vector<Event> data, order;
    for (const TaskWaits& some : waits) {
      std::ranges::copy(std::span<const Event>(some.data), std::back_inserter(data));
      std::ranges::copy(std::span<const Event>(some.order), std::back_inserter(order));
    }
    const Event event = add(streams, task, data, order);
    events.assign(streams.size(), event);
    return events;
  }
  const std::size_t first = nodes().size();
  try {
    std::vector<Node> made;
    Task share = task;  // the other streams get a task without args
    share.run = nullptr;
    share.args = nullptr;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      made.push_back(
          log_.make({&streams[i], 1}, i == 0 ? task : share, waits[i].data, waits[i].order, i));
    }
    if (!rehearses()) record_each(made);
    for (Node& node : made) events.push_back(log_.append(std::move(node)));
  } catch (...) {
    if (task.drop != nullptr) task.drop(task.args);
    throw;
  }
  nodes()[first].task.drop = task.drop;
  return events;
}

// Communication goes into the earliest possible phase. Arithmetic is spread over its possible
// phases, up to the last phase in which this GPU communicates: in a phase that has much arithmetic
// already, it would only delay the communication of the next phase.
std::int32_t Capture::balanced(const Node& node, std::int32_t earliest) {
  constexpr std::int64_t kNegligible = 8;  // a task is negligible if it costs this many times less
                                           // than its phase
  GpuPhases& gpu = phases_of_gpu_[node.streams.front()->queue().gpu()];
  const std::int64_t cost = std::max<std::int64_t>(node.task.cost_ns, 1);
  std::int32_t best = earliest;
  for (std::int32_t p = earliest; p <= std::max(gpu.communicates, earliest); ++p) {
    const auto at = static_cast<std::size_t>(p);
    if (gpu.cost.size() <= at) gpu.cost.resize(at + 1, 0);
    if (gpu.cost[at] < gpu.cost[static_cast<std::size_t>(best)]) best = p;
    if (gpu.cost[at] < cost || cost < gpu.cost[at] / kNegligible) {
      best = p;
      break;
    }
  }
  gpu.cost[static_cast<std::size_t>(best)] += cost;
  return best;
}

RecordedAt Capture::place_of(const Node& node) {
  RecordedAt place;
  int gpu = -1;
  if (graph_of_each_gpu_) {
    gpu = node.streams.front()->queue().gpu();
    const bool several =
        std::ranges::any_of(node.streams, [&](CudaStream* s) { return s->queue().gpu() != gpu; });
    for (std::int32_t task : node.before) {
      const Node& before = log_.entries()[static_cast<std::size_t>(task)];
      const bool inside =
          !several && !before.place.runs_directly() && before.streams.front()->queue().gpu() == gpu;
      place.phase = std::max(place.phase, before.place.phase + (inside ? 0 : 1));
    }
    if (!several && node.streams.front()->role() == StreamRole::compute) {
      place.phase = balanced(node, place.phase);
    } else {
      for (CudaStream* s : node.streams) {
        GpuPhases& of = phases_of_gpu_[s->queue().gpu()];
        of.communicates = std::max(of.communicates, place.phase);
      }
    }
    if (several) return place;
  }
  const auto known = std::ranges::find_if(recordings_, [&](const SubRecording& part) {
    return part.gpu == gpu && part.phase == place.phase;
  });
  place.part = static_cast<std::int32_t>(known - recordings_.begin());
  if (known == recordings_.end()) {
    recordings_.push_back({gpu, place.phase, std::make_unique<Recording>(*backend_)});
  }
  return place;
}

Span Capture::begin_span(const Node& node, cudaStream_t native) {
  return backend_->spans().begin(node.task, node.streams.front()->queue().gpu(),
                                 places_of(node.streams), native, /*captured=*/true);
}

void Capture::record_task(Node& node) {
  node.place = place_of(node);
  if (node.place.runs_directly()) return;
  Recording& recording = *recordings_[static_cast<std::size_t>(node.place.part)].recording;
  const std::int32_t lane = node.place.lane = recording.lane_of(*node.streams.front());
  for (std::int32_t task : node.before) {
    const Node& before = log_.entries()[static_cast<std::size_t>(task)];
    if (before.place.part == node.place.part && before.place.lane != lane) {
      recording.come_after(lane, *before.mark);
    }
  }
  recording.begin_task(lane);
  const GpuScope gpu(node.streams.front()->queue().gpu());
  const bool timed = timeline_sink() != nullptr;
  cudaStream_t native = recording.native(lane);
  if (timed) node.span = begin_span(node, native);
  Recording* const outer = std::exchange(running_, &recording);
  const Ref<Failure> failure = backend_->run(node.task, *node.streams.front(), native);
  running_ = outer;
  recording.end_task();
  if (timed) backend_->spans().end(node.span, native, true);
  if (failure) {
    if (timed) backend_->spans().give_back(std::exchange(node.span, Span()));
    failure->reported.store(true, std::memory_order_relaxed);
    std::rethrow_exception(failure->error);
  }
  node.mark = recording.mark(lane);
}

// Records a node for each stream, in a capture with one graph of all GPUs.
void Capture::record_each(std::span<Node> nodes) {
  std::vector<std::int32_t> lanes;
  Recording* recording = nullptr;
  for (Node& node : nodes) {
    node.place = place_of(node);
    recording = recordings_[static_cast<std::size_t>(node.place.part)].recording.get();
    lanes.push_back(node.place.lane = recording->lane_of(*node.streams.front()));
    for (std::int32_t task : node.before) {
      const Node& before = log_.entries()[static_cast<std::size_t>(task)];
      if (before.place.lane != node.place.lane)
        recording->come_after(node.place.lane, *before.mark);
    }
  }
  recording->begin_task(lanes);
  const bool timed = timeline_sink() != nullptr;
  for (Node& node : nodes) {
    const GpuScope gpu(node.streams.front()->queue().gpu());
    if (timed) node.span = begin_span(node, recording->native(node.place.lane));
  }
  Node& first = nodes.front();
  const GpuScope gpu(first.streams.front()->queue().gpu());
  Recording* const outer = std::exchange(running_, recording);
  const Ref<Failure> failure =
      backend_->run(first.task, *first.streams.front(), recording->native(first.place.lane));
  running_ = outer;
  recording->end_task();
  for (Node& node : nodes) {
    if (timed && !failure)
      backend_->spans().end(node.span, recording->native(node.place.lane), true);
    if (timed && failure) backend_->spans().give_back(std::exchange(node.span, Span()));
    if (!failure) node.mark = recording->mark(node.place.lane);
  }
  if (!failure) return;
  failure->reported.store(true, std::memory_order_relaxed);
  std::rethrow_exception(failure->error);
}

cudaStream_t Capture::member(CudaStream& stream) {
  if (running_ == nullptr) throw Error("native_in_group: this thread runs no group task");
  return running_->member(stream);
}

}  // namespace shmap::cuda
