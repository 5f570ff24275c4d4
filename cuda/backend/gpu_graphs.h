// GpuGraphs: a captured program as graphs of single GPUs, for drivers that do not support graphs
// of several GPUs.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/failure_log.h"
#include "cuda/backend/capture.h"
#include "cuda/device/event_pool.h"
#include "cuda/device/launch_thread.h"

namespace shmap::cuda {

class Queue;

// The capture has cut the tasks into phases (RecordedAt). In a phase each GPU has at most one
// graph; the graphs of a phase are launched at the same time, in the GPUs' launch queues, by their
// launch threads. To wait for another GPU, a graph waits for an event recorded after a graph of an
// earlier phase. A task of several GPUs runs at each launch in its own streams, after the earlier
// phases and beside the graphs of its own phase.
class GpuGraphs {
 public:
  // Takes the recordings; the caller keeps the tasks' args. Throws DeviceError.
  GpuGraphs(CudaBackend& backend, Capture& capture, Queue& leader);
  ~GpuGraphs();  // all launches must be done
  GpuGraphs(const GpuGraphs&) = delete;
  GpuGraphs& operator=(const GpuGraphs&) = delete;

  // Puts the program into the GPUs' queues, after the work of the leader, whose later work comes
  // after all of it. Returns null, or the first failure; work after the failing one is then
  // missing. The caller holds the submit mutex.
  Ref<Failure> launch();

 private:
  struct SubGraph {
    Queue* queue = nullptr;
    LaunchThread* thread = nullptr;
    cudaGraphExec_t exec = nullptr;
    std::int32_t phase = 0;
    std::vector<cudaEvent_t> waits;
    Ref<Mark> after;  // recorded after the graph; null if nothing waits for it
  };
  struct Direct {
    Task task;
    std::vector<CudaStream*> streams;
    std::vector<Queue*> queues;  // the launch queues of its GPUs
    std::int32_t phase = 0;
    std::vector<cudaEvent_t> waits;
    Ref<Mark> after;
  };
  // The start, on one GPU, of a task that runs directly.
  struct Fork {
    Queue* queue;
    Ref<Mark> at;
    bool first;  // the launch has put no earlier work there
  };
  struct Phase {
    std::vector<SubGraph> parts;
    std::vector<Direct> directs;
    std::vector<Fork> forks;
  };

  class Connector;

  Phase& phase(std::int32_t number);
  void make_graphs(Capture& capture);
  static cudaError_t launch_graph(void* part) noexcept;
  cudaError_t launch_graphs(Phase& phase);
  Ref<Failure> launch_directs(Phase& phase);
  Ref<Failure> launch_phase(Phase& phase);
  void join_after_failure() noexcept;

  CudaBackend& backend_;
  Queue& leader_;
  std::vector<Phase> phases_;
  Ref<Mark> start_;                // the start of a launch, in the leader's queue
  std::vector<cudaEvent_t> ends_;  // the events that the leader waits for at the end
  std::vector<Queue*> queues_;     // all, the leader's first
};

}  // namespace shmap::cuda
