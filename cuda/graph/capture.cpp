#include "cuda/graph/capture.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/plan_memory.h"
#include "core/device/timeline.h"
#include "cuda/device/backend.h"
#include "cuda/device/error.h"
#include "cuda/device/gpus.h"
#include "cuda/device/stream.h"
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
  parts_.clear();
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

Capture::Captured Capture::node_of(std::span<CudaStream* const> streams, const Task& task,
                                   std::span<const Event> waits) const {
  Captured node;
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
    throw Error("capturing '" + std::string(task.name) +
                "', which waits for work that was enqueued before the capture and is not done: "
                "synchronize before begin_capture");
  }
  std::ranges::sort(node.before);
  node.before.erase(std::unique(node.before.begin(), node.before.end()), node.before.end());
  node.streams.assign(streams.begin(), streams.end());
  node.task = task;
  node.task.drop = nullptr;
  return node;
}

bool Capture::rehearses() {
  const detail::CaptureMemory* memory = detail::thread_state.memory;
  if (memory == nullptr || !memory->rehearses()) return false;
  return rehearsed_ = true;
}

void Capture::add_node(Captured node) {
  last_.reserve(last_.size() + node.streams.size());
  const auto index = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back(std::move(node));
  for (CudaStream* s : nodes_.back().streams) {
    const auto known = std::ranges::find(last_, s, &Last::stream);
    if (known != last_.end()) {
      known->index = index;
    } else {
      last_.push_back({s, index});
    }
  }
}

Event Capture::add(std::span<CudaStream* const> streams, const Task& task,
                   std::span<const Event> waits) {
  try {
    Captured node = node_of(streams, task, waits);
    node.event = make_ref<CapturedEvent>(this, static_cast<std::int32_t>(nodes_.size()));
    if (!rehearses()) record_task(node);
    add_node(std::move(node));
  } catch (...) {
    if (task.drop != nullptr) task.drop(task.args);
    throw;
  }
  nodes_.back().task.drop = task.drop;
  return Event(nodes_.back().event);
}

std::vector<Event> Capture::add_each(std::span<CudaStream* const> streams, const Task& task,
                                     std::span<const Waits> waits) {
  std::vector<Event> events;
  if (graph_of_each_gpu_) {
    std::vector<Event> all;
    for (const Waits& some : waits)
      for (const Event& e : std::span<const Event>(some)) all.push_back(e);
    const Event event = add(streams, task, all);
    events.assign(streams.size(), event);
    return events;
  }
  const std::size_t first = nodes_.size();
  try {
    std::vector<Captured> made;
    Task share = task;  // of the others: nothing that is not the first one's
    share.run = nullptr;
    share.args = nullptr;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      made.push_back(node_of({&streams[i], 1}, i == 0 ? task : share, waits[i]));
      made.back().event = make_ref<CapturedEvent>(this, static_cast<std::int32_t>(first + i));
    }
    if (!rehearses()) record_each(made);
    nodes_.reserve(first + made.size());
    last_.reserve(last_.size() + made.size());
    for (Captured& node : made) {
      events.emplace_back(node.event);
      add_node(std::move(node));
    }
  } catch (...) {
    if (task.drop != nullptr) task.drop(task.args);
    throw;
  }
  nodes_[first].task.drop = task.drop;
  return events;
}

// Communication comes in the first phase that it can be in. Arithmetic is spread over the phases
// that it may be in, up to the last that this GPU communicates in: in a phase that has as much
// already, it would only keep the communication of the next one waiting.
std::int32_t Capture::balanced(const Captured& node, std::int32_t earliest) {
  constexpr std::int64_t kNegligible = 8;  // so many times less than what is there
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

Place Capture::place_of(const Captured& node) {
  Place place;
  int gpu = -1;
  if (graph_of_each_gpu_) {
    gpu = node.streams.front()->queue().gpu();
    const bool several =
        std::ranges::any_of(node.streams, [&](CudaStream* s) { return s->queue().gpu() != gpu; });
    for (std::int32_t task : node.before) {
      const Captured& before = nodes_[static_cast<std::size_t>(task)];
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
  const auto known = std::ranges::find_if(
      parts_, [&](const Part& part) { return part.gpu == gpu && part.phase == place.phase; });
  place.part = static_cast<std::int32_t>(known - parts_.begin());
  if (known == parts_.end()) {
    parts_.push_back({gpu, place.phase, std::make_unique<Recording>(*backend_)});
  }
  return place;
}

void Capture::record_task(Captured& node) {
  node.place = place_of(node);
  if (node.place.runs_directly()) return;
  Recording& recording = *parts_[static_cast<std::size_t>(node.place.part)].recording;
  const std::int32_t lane = node.place.lane = recording.lane_of(*node.streams.front());
  for (std::int32_t task : node.before) {
    const Captured& before = nodes_[static_cast<std::size_t>(task)];
    if (before.place.part == node.place.part && before.place.lane != lane) {
      recording.come_after(lane, *before.mark);
    }
  }
  recording.begin_task(lane);
  const GpuScope gpu(node.streams.front()->queue().gpu());
  const bool timed = timeline_sink() != nullptr;
  cudaStream_t native = recording.native(lane);
  if (timed) node.span = backend_->spans().begin(node.task, node.streams, native, true);
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

// Of one graph of all GPUs.
void Capture::record_each(std::span<Captured> nodes) {
  std::vector<std::int32_t> lanes;
  Recording* recording = nullptr;
  for (Captured& node : nodes) {
    node.place = place_of(node);
    recording = parts_[static_cast<std::size_t>(node.place.part)].recording.get();
    lanes.push_back(node.place.lane = recording->lane_of(*node.streams.front()));
    for (std::int32_t task : node.before) {
      const Captured& before = nodes_[static_cast<std::size_t>(task)];
      if (before.place.lane != node.place.lane)
        recording->come_after(node.place.lane, *before.mark);
    }
  }
  recording->begin_task(lanes);
  const bool timed = timeline_sink() != nullptr;
  for (Captured& node : nodes) {
    const GpuScope gpu(node.streams.front()->queue().gpu());
    if (timed)
      node.span = backend_->spans().begin(node.task, node.streams,
                                          recording->native(node.place.lane), true);
  }
  Captured& first = nodes.front();
  const GpuScope gpu(first.streams.front()->queue().gpu());
  Recording* const outer = std::exchange(running_, recording);
  const Ref<Failure> failure =
      backend_->run(first.task, *first.streams.front(), recording->native(first.place.lane));
  running_ = outer;
  recording->end_task();
  for (Captured& node : nodes) {
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

Event Capture::record(CudaStream& stream) {
  const auto known = std::ranges::find(last_, &stream, &Last::stream);
  return known == last_.end() ? Event()
                              : Event(nodes_[static_cast<std::size_t>(known->index)].event);
}

}  // namespace shmap::cuda
