// Capture: the record of a thread's tasks from which graphs are made.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/capture.h"
#include "core/device/graph.h"
#include "core/device/stream.h"
#include "core/runtime/launch.h"
#include "cuda/backend/recording.h"
#include "cuda/device/event_pool.h"
#include "cuda/device/span_log.h"
#include "cuda/driver/graph_resource.h"

namespace shmap::cuda {

class CudaBackend;
class CudaStream;

// The streams in which captures record, in place of the backend's streams: other threads may use
// the backend's streams meanwhile, and their work would be recorded too. Any thread.
class ShadowStreams {
 public:
  ~ShadowStreams();
  cudaStream_t take(int gpu, int priority);  // throws DeviceError
  void give(int gpu, int priority, cudaStream_t stream) noexcept;
  void close() noexcept;

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::vector<cudaStream_t>> free_;
};

// The recording of a task: in the graph of all GPUs or, if each GPU has graphs of its own, in one
// of these. The tasks are then cut into phases: a task is in a later phase than the tasks of other
// GPUs that it waits for, so that graphs of one phase do not depend on each other.
struct RecordedAt {
  static constexpr std::int32_t kNone = -1;
  std::int32_t phase = 0;
  std::int32_t part = kNone;  // an index in Capture::recordings()
  std::int32_t lane = kNone;  // a lane of that recording

  // True for a task of several GPUs that belongs to no graph, and runs again at each launch.
  bool runs_directly() const noexcept { return part == kNone; }
};

// A task runs when it is captured, and the work that it puts into the stream is recorded. In a
// rehearsal (core/device/plan_memory.h) tasks do not run, because their addresses have no memory;
// such a capture has the tasks and their order, but cannot be launched.
class Capture : public CapturedResources {
 public:
  struct Node : CapturedTask<CudaStream> {
    RecordedAt place;
    Ref<Mark> mark;  // recorded after the task
    Span span;       // if the timeline is on
  };
  struct SubRecording {
    int gpu;  // -1: all GPUs
    std::int32_t phase;
    std::unique_ptr<Recording> recording;
  };

  // graph_of_each_gpu: see RecordedAt. dependent_launches: see CapturedResources.
  Capture(CudaBackend& backend, bool graph_of_each_gpu, bool dependent_launches) noexcept
      : CapturedResources(dependent_launches),
        backend_(&backend),
        graph_of_each_gpu_(graph_of_each_gpu) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture();  // abandons an unfinished recording

  CudaBackend& backend() const noexcept { return *backend_; }
  bool graph_of_each_gpu() const noexcept { return graph_of_each_gpu_; }
  // Takes ownership of the args in every case. Throws what task.run throws.
  Event add(std::span<CudaStream* const> streams, const Task& task, std::span<const Event> waits,
            std::span<const Event> after);
  // The implementation of CudaBackend::enqueue_each: records a node for each stream. The first node
  // has the task, and the work that the task puts into the streams belongs to their nodes. If each
  // GPU has graphs of its own, a single node has the task, which is then one of several GPUs and
  // runs directly.
  std::vector<Event> add_each(std::span<CudaStream* const> streams, const Task& task,
                              std::span<const TaskWaits> waits);
  Event record(CudaStream& stream) const { return log_.record(stream); }
  // Called in the run of a group task: the lane of a member stream.
  cudaStream_t member(CudaStream& stream);

  std::vector<Node>& nodes() noexcept { return log_.entries(); }
  std::vector<CudaStream*> streams() const { return log_.streams(); }
  bool rehearsed() const noexcept { return rehearsed_; }
  // The recordings, each of some of the tasks: at most one if a graph may span all GPUs.
  std::vector<SubRecording>& recordings() noexcept { return recordings_; }

 private:
  RecordedAt place_of(const Node& node);
  std::int32_t balanced(const Node& node, std::int32_t earliest);
  bool rehearses();
  Span begin_span(const Node& node, cudaStream_t native);
  void record_task(Node& node);
  void record_each(std::span<Node> nodes);

  CudaBackend* backend_;
  const bool graph_of_each_gpu_;
  bool rehearsed_ = false;
  std::vector<SubRecording> recordings_;
  struct GpuPhases {
    std::int32_t communicates = 0;   // the latest phase in which it communicates
    std::vector<std::int64_t> cost;  // cost of the arithmetic in each phase
  };
  std::map<int, GpuPhases> phases_of_gpu_;
  Recording* running_ = nullptr;  // the recording of the task that runs
  CaptureLog<Node> log_;
};

// The capture that this thread has open; null where it captures nothing.
Capture* capture_of_thread() noexcept;

}  // namespace shmap::cuda
