// CudaGraph: a captured program as one cudaGraph of all its GPUs, or as graphs of single GPUs
// (cuda/backend/gpu_graphs.h).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/device/graph.h"
#include "cuda/backend/capture.h"
#include "cuda/backend/gpu_graphs.h"

namespace shmap::cuda {

class Queue;

// Launched in its GPU's launch queue, apart from the streams. The queue waits for the graph's
// streams that had work since the last launch, and closes a gate in each of these streams; a launch
// that directly follows another therefore needs no waits. The destructor waits until the last
// launch is done.
class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(Capture& capture);  // takes ownership of the args of its tasks
  ~CudaGraph() override;

  int nodes() const noexcept override { return static_cast<int>(tasks_.size()); }
  int edges() const noexcept override { return edges_; }
  std::int64_t cost_ns() const noexcept override { return cost_ns_; }
  std::vector<GraphTask> tasks() const override;
  Event launch(std::span<const Event> waits, std::span<const Event> after,
               std::uint64_t ticket) override;
  // Reports the times of the last launch's tasks to the timeline. Returns false, without effect,
  // where the launch is not known to be done. The caller holds the submit mutex.
  bool tell_if_done();

 private:
  void tell();
  // Puts a run of the graph into queue_. Returns null, or the failure.
  Ref<Failure> launch_here();
  struct TaskRecord {
    Task task;
    std::vector<CudaStream*> streams;
    std::vector<std::int32_t> before;
  };
  CudaBackend& backend_;
  std::vector<CudaStream*> streams_;
  Queue* queue_;
  std::vector<TaskRecord> tasks_;
  std::vector<Ref<GraphResource>> kept_;
  int edges_ = 0;
  std::int64_t cost_ns_ = 0;
  bool rehearsed_ = false;
  cudaGraphExec_t exec_ = nullptr;
  std::unique_ptr<GpuGraphs> gpu_graphs_;  // used instead of one graph of all GPUs
  // One for each task, if the timeline was on during the capture; else empty. While the timeline is
  // on, a launch with spans waits for the previous launch, whose times it would overwrite; a launch
  // without them is one span as a whole.
  std::vector<Span> spans_;
  bool untold_ = false;
  std::uint64_t launched_ = 0;  // the number of the last launch in queue_
};

}  // namespace shmap::cuda
