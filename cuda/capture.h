// Capture: what a thread records for a graph.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/event.h"
#include "core/device/graph.h"
#include "core/device/stream.h"
#include "cuda/event_pool.h"
#include "cuda/span_log.h"

namespace shmap::cuda {

class CudaBackend;
class CudaStream;

// Something that a graph keeps alive.
class Kept : public RefCounted {
 public:
  virtual ~Kept() = default;
};

// Streams that captures record in, each in place of one of the backend's: other threads may go on
// using those meanwhile, and would be recorded too. Any thread.
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

// The event of a captured task: a place in the capture.
class CapturedEvent final : public Completion {
 public:
  CapturedEvent(const void* capture, std::int32_t index) noexcept
      : Completion(capture), index_(index) {}
  void block() override;  // throws
  std::int32_t index() const noexcept { return index_; }
  void end_of_capture() noexcept { word_.store(Completion::done, std::memory_order_release); }

 private:
  const std::int32_t index_;
};

// A task is run when it is captured: what it puts into the stream is recorded. In a rehearsal
// (core/device/plan_memory.h) it is not, since its addresses are no memory; such a capture has the
// tasks and their order, but cannot be launched.
class Capture {
 public:
  struct Captured {
    Task task;
    std::vector<CudaStream*> streams;
    std::vector<std::int32_t> before;  // indices of what it waits for, ascending, each once
    Ref<CapturedEvent> event;
    std::int32_t lane = -1;  // where it was recorded
    Ref<Mark> mark;          // after it
    Span span;               // where the timeline is on
  };

  explicit Capture(CudaBackend& backend) noexcept : backend_(&backend) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture();  // abandons the recording; drops the args that no graph took, and ends the events

  CudaBackend& backend() const noexcept { return *backend_; }
  // Takes over args in every case. Throws what task.run throws.
  Event add(std::span<CudaStream* const> streams, const Task& task, std::span<const Event> waits);
  Event record(CudaStream& stream);
  // In the run of a group task: the lane of a member.
  cudaStream_t member(CudaStream& stream);
  void keep(Ref<Kept> object) { kept_.push_back(std::move(object)); }

  std::vector<Captured>& nodes() noexcept { return nodes_; }
  std::vector<Ref<Kept>>& kept() noexcept { return kept_; }
  std::vector<CudaStream*> streams() const;
  bool recorded() const noexcept { return !lanes_.empty(); }
  // Ends the recording; the caller owns what it made. Throws DeviceError.
  cudaGraph_t finish();

 private:
  // A stream that was used, and what stands for it.
  struct Lane {
    CudaStream* stream;
    cudaStream_t shadow;
  };
  struct Last {
    CudaStream* stream;
    std::int32_t index;
  };
  std::int32_t lane_of(CudaStream& stream);
  Lane& lane(std::int32_t i) { return lanes_[static_cast<std::size_t>(i)]; }
  void come_after(std::int32_t lane, const std::vector<std::int32_t>& tasks);
  void come_after(std::int32_t lane, const Mark& mark);
  Ref<Mark> mark(std::int32_t lane);
  void record_task(Captured& node);
  cudaError_t end_recording(cudaGraph_t* graph) noexcept;
  void abandon() noexcept;

  CudaBackend* backend_;
  std::vector<Captured> nodes_;
  std::vector<Last> last_;   // by stream; the streams that were used
  std::vector<Lane> lanes_;  // the first is where the capture began
  Ref<Mark> start_;
  std::vector<Ref<Kept>> kept_;
  std::vector<std::int32_t> members_;  // the lanes of the group task that is running, its own first
  bool ended_ = false;
};

}  // namespace shmap::cuda
