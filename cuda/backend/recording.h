// Recording: some of the tasks that a thread captures, which become one cudaGraph.
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

// Each stream that is used has a lane: a CUDA stream that records in its place. Used by one thread.
class Recording {
 public:
  explicit Recording(CudaBackend& backend) noexcept : backend_(&backend) {}
  ~Recording();  // abandons an unfinished recording
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Makes the lane if necessary; the first lane begins the recording. Throws DeviceError.
  std::int32_t lane_of(CudaStream& stream);
  cudaStream_t native(std::int32_t lane) const { return lane_at(lane).shadow; }
  Ref<Mark> mark(std::int32_t lane);
  void come_after(std::int32_t lane, const Mark& mark);

  // Call before the run of a task in that lane.
  void begin_task(std::int32_t lane) { members_.assign(1, lane); }
  // For a task in several lanes, which do not wait for each other.
  void begin_task(std::vector<std::int32_t> lanes) {
    members_ = std::move(lanes);
    apart_ = true;
  }
  void end_task();
  // Called in the run of a group task: the lane of a member, after the earlier work of that task.
  cudaStream_t member(CudaStream& stream);

  // Ends the recording; the caller owns the graph: null if no lane was used. Throws DeviceError.
  cudaGraph_t finish();

 private:
  struct Lane {
    CudaStream* stream;
    cudaStream_t shadow;
  };
  const Lane& lane_at(std::int32_t i) const { return lanes_[static_cast<std::size_t>(i)]; }
  cudaError_t end(cudaGraph_t* graph) noexcept;

  CudaBackend* backend_;
  std::vector<Lane> lanes_;  // the recording began in the first
  Ref<Mark> start_;
  std::vector<std::int32_t> members_;  // the lanes of the running task, its own first
  bool apart_ = false;
  bool ended_ = false;
};

}  // namespace shmap::cuda
