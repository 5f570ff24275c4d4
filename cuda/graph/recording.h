// Recording: some of the tasks that a thread captures, on their way into one cudaGraph.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/intrusive.h"
#include "cuda/device/event_pool.h"

namespace shmap::cuda {

class CudaBackend;
class CudaStream;

// Each stream that is used has a lane: a stream of the runtime that records in its place. Of one
// thread.
class Recording {
 public:
  explicit Recording(CudaBackend& backend) noexcept : backend_(&backend) {}
  ~Recording();  // abandons what was not finished
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Made where it is not there yet; the first one begins the recording. Throws DeviceError.
  std::int32_t lane_of(CudaStream& stream);
  cudaStream_t native(std::int32_t lane) const { return lane_at(lane).shadow; }
  Ref<Mark> mark(std::int32_t lane);
  void come_after(std::int32_t lane, const Mark& mark);

  // Around the run of a task in that lane.
  void begin_task(std::int32_t lane) { members_.assign(1, lane); }
  // In several lanes, in each by itself: they are not each other's to wait for.
  void begin_task(std::vector<std::int32_t> lanes) {
    members_ = std::move(lanes);
    apart_ = true;
  }
  void end_task();
  // In the run of a group task: the lane of a member, after what that task had before.
  cudaStream_t member(CudaStream& stream);

  // Ends it; the caller owns what it made: null where nothing was used. Throws DeviceError.
  cudaGraph_t finish();

 private:
  struct Lane {
    CudaStream* stream;
    cudaStream_t shadow;
  };
  const Lane& lane_at(std::int32_t i) const { return lanes_[static_cast<std::size_t>(i)]; }
  cudaError_t end(cudaGraph_t* graph) noexcept;

  CudaBackend* backend_;
  std::vector<Lane> lanes_;  // the first is where it began
  Ref<Mark> start_;
  std::vector<std::int32_t> members_;  // the lanes of the task that runs, its own first
  bool apart_ = false;
  bool ended_ = false;
};

}  // namespace shmap::cuda
