// GraphParts: a captured program as graphs of single GPUs, for drivers that take no graph of
// several.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "core/base/intrusive.h"
#include "core/device/failure_log.h"
#include "cuda/device/event_pool.h"
#include "cuda/device/launch_thread.h"
#include "cuda/graph/capture.h"

namespace shmap::cuda {

class Queue;

// The capture has cut the tasks into phases (Place). In a phase each GPU has at most one graph;
// these are launched at once, in the GPUs' launch queues, by their launch threads. What waits for
// another GPU waits for an event that was recorded after a graph of an earlier phase. A task of
// several GPUs is run at each launch, in its own streams, after the phases before and beside the
// graphs of its own.
class GraphParts {
 public:
  // Takes the recordings. The tasks' args stay the caller's. Throws DeviceError.
  GraphParts(CudaBackend& backend, Capture& capture, Queue& leader);
  ~GraphParts();  // what was launched is done
  GraphParts(const GraphParts&) = delete;
  GraphParts& operator=(const GraphParts&) = delete;

  // Puts the program into the GPUs' queues: after what the leader has, which comes after all of it
  // in turn. Null, or what the first failure was; then what comes after it is not there. The caller
  // holds the submit mutex.
  Ref<Failure> launch();

 private:
  struct Part {
    Queue* queue = nullptr;
    LaunchThread* thread = nullptr;
    cudaGraphExec_t exec = nullptr;
    std::int32_t phase = 0;
    std::vector<cudaEvent_t> waits;
    Ref<Mark> after;  // recorded after it; null where nobody waits
  };
  struct Direct {
    Task task;
    std::vector<CudaStream*> streams;
    std::vector<Queue*> queues;  // the launch queues of its GPUs
    std::int32_t phase = 0;
    std::vector<cudaEvent_t> waits;
    Ref<Mark> after;
  };
  // Of a GPU, where a task that runs directly begins.
  struct Fork {
    Queue* queue;
    Ref<Mark> at;
    bool first;  // nothing of the launch was put there before
  };
  struct Phase {
    std::vector<Part> parts;
    std::vector<Direct> directs;
    std::vector<Fork> forks;
  };

  Phase& phase(std::int32_t number);
  void make_graphs(Capture& capture);
  void connect(Capture& capture);
  static cudaError_t launch_part(void* part) noexcept;
  cudaError_t launch_parts(Phase& phase);
  Ref<Failure> launch_directs(Phase& phase);
  Ref<Failure> launch_phase(Phase& phase);
  void join_after_failure() noexcept;

  CudaBackend& backend_;
  Queue& leader_;
  std::vector<Phase> phases_;
  Ref<Mark> start_;                // of a launch, in the leader's queue
  std::vector<cudaEvent_t> ends_;  // what it waits for at the end
  std::vector<Queue*> queues_;     // all, the leader's first
};

}  // namespace shmap::cuda
