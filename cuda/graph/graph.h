// CudaGraph: a captured program, over one cudaGraph of all its GPUs, or graphs of each
// (cuda/graph/graph_parts.h).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/device/graph.h"
#include "cuda/graph/capture.h"
#include "cuda/graph/graph_parts.h"

namespace shmap::cuda {

class Queue;

// Is launched in a queue of its own, which waits for those of its streams that had work since the
// last launch, and closes them a gate; so a launch that follows another costs no waits. Destroying
// it waits until its last launch is done.
class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(Capture& capture);  // takes the args of its tasks
  ~CudaGraph() override;

  int nodes() const noexcept override { return static_cast<int>(tasks_.size()); }
  int edges() const noexcept override { return edges_; }
  std::int64_t cost_ns() const noexcept override { return cost_ns_; }
  std::vector<GraphTask> tasks() const override;
  Event launch(std::span<const Event> waits, std::span<const Event> after,
               std::uint64_t ticket) override;
  // The last launch is done: tells the timeline when its tasks ran.
  void tell();

 private:
  // Puts a run of it into queue_. Null, or what failed.
  Ref<Failure> launch_here();
  struct Captured {
    Task task;
    std::vector<CudaStream*> streams;
    std::vector<std::int32_t> before;
  };
  CudaBackend& backend_;
  std::vector<CudaStream*> streams_;
  Queue* queue_;
  std::vector<Captured> tasks_;
  std::vector<Ref<Kept>> kept_;
  int edges_ = 0;
  std::int64_t cost_ns_ = 0;
  bool rehearsed_ = false;
  cudaGraphExec_t exec_ = nullptr;
  std::unique_ptr<GraphParts> parts_;  // in its place
  // Of each task, where the timeline was on at the capture. While it is on, a launch waits for the
  // one before it, whose times it would overwrite; else it is one span as a whole.
  std::vector<Span> spans_;
  bool untold_ = false;
  std::uint64_t launched_ = 0;  // the number of the last launch, in queue_
};

}  // namespace shmap::cuda
