// SharedTimer: measures work as the virtual devices of one GPU run it, all of them at once.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace shmap::cuda {

// Runs are launched as one graph, with a branch for each device that shares the GPU: the host's
// time for a launch, ten times that of a small product, does not count, and an algorithm that fills
// the GPU alone does not look better than it is beside seven others. Used by one thread, which
// captures nothing.
class SharedTimer {
 public:
  // Enqueues the work on `stream`, with so much memory of its own. False: it cannot.
  using Run = std::function<bool(cudaStream_t stream, void* workspace)>;

  // For runs on that GPU, which is the current one; the work that `after` has now comes first.
  // Blocks until that is done. Throws DeviceError.
  SharedTimer(int gpu, cudaStream_t after);
  ~SharedTimer();
  SharedTimer(const SharedTimer&) = delete;
  SharedTimer& operator=(const SharedTimer&) = delete;

  struct Time {
    float ms = -1;  // negative: the run cannot, or lacks memory
    bool lacks_memory = false;
  };
  // The time of a run: of all branches, divided by their number and that of each one's runs.
  // Blocks. A run that takes many times as long as `most`, the best so far (0: there is none), is
  // not measured further.
  Time time(const Run& run, std::size_t workspace_bytes, float most);

 private:
  SharedTimer() = default;  // so that what a constructor has made before it throws is destroyed
  float alone(const Run& run, void* workspace);
  Time in_graph(const Run& run, const std::vector<void*>& workspaces, std::size_t branches,
                int runs, int launches);

  std::vector<cudaStream_t> lanes_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace shmap::cuda
