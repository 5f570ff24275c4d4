#include "cuda/kernels/matmul/shared_timer.h"

#include <algorithm>

#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"

namespace shmap::cuda {

namespace {

// A branch of the graph has runs for about kBranchMs, at most kMostBranchRuns; the graph is
// launched for about kGraphMs.
constexpr float kBranchMs = 0.2f, kGraphMs = 2;
constexpr int kMostBranchRuns = 20, kMostLaunches = 20;
// Work that takes this many times as long as the best, alone and with its launch, is not measured
// further. Below kLaunchMs the launch is most of it.
constexpr float kHopelessAlone = 2, kLaunchMs = 0.05f;
// Work that takes so long fills the GPU: one branch shows as much as several.
constexpr float kFillsMs = 0.5f;

struct Memory {
  std::vector<void*> of_lanes;
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    for (void* data : of_lanes) note(cudaFree(data));
  }
  bool add(std::size_t bytes) {
    void* data = nullptr;
    if (bytes > 0 && cudaMalloc(&data, bytes) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    of_lanes.push_back(data);
    return true;
  }
};

struct Executable {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable() {
    if (exec != nullptr) note(cudaGraphExecDestroy(exec));
    if (graph != nullptr) note(cudaGraphDestroy(graph));
  }
};

}  // namespace

SharedTimer::SharedTimer(int gpu, cudaStream_t after) : SharedTimer() {
  check(cudaStreamSynchronize(after), "cudaStreamSynchronize before algorithms are timed");
  lanes_.resize(static_cast<std::size_t>(std::max(1, devices_sharing(gpu))));
  for (cudaStream_t& lane : lanes_)
    check(cudaStreamCreateWithFlags(&lane, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaEventCreate(&begin_), "cudaEventCreate");
  check(cudaEventCreate(&end_), "cudaEventCreate");
}

SharedTimer::~SharedTimer() {
  for (cudaStream_t lane : lanes_)
    if (lane != nullptr) note(cudaStreamDestroy(lane));
  for (cudaEvent_t event : {begin_, end_})
    if (event != nullptr) note(cudaEventDestroy(event));
}

// The milliseconds of one run in a stream, its launch included.
float SharedTimer::alone(const Run& run, void* workspace) {
  check(cudaEventRecord(begin_, lanes_[0]), "cudaEventRecord");
  if (!run(lanes_[0], workspace)) return -1;
  check(cudaEventRecord(end_, lanes_[0]), "cudaEventRecord");
  check(cudaEventSynchronize(end_), "cudaEventSynchronize after timing an algorithm");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
  return ms;
}

SharedTimer::Time SharedTimer::in_graph(const Run& run, const std::vector<void*>& workspaces,
                                        std::size_t branches, int runs, int launches) {
  const cudaStream_t first = lanes_[0];
  Executable made;
  check(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  bool ran = true;
  try {
    check(cudaEventRecord(begin_, first), "cudaEventRecord in a capture");
    for (std::size_t lane = 0; lane < branches; ++lane) {
      if (lane > 0)
        check(cudaStreamWaitEvent(lanes_[lane], begin_, 0), "cudaStreamWaitEvent in a capture");
      for (int i = 0; i < runs && ran; ++i) ran = run(lanes_[lane], workspaces[lane]);
    }
    for (std::size_t lane = 1; lane < branches; ++lane) {
      check(cudaEventRecord(end_, lanes_[lane]), "cudaEventRecord in a capture");
      check(cudaStreamWaitEvent(first, end_, 0), "cudaStreamWaitEvent in a capture");
    }
  } catch (...) {
    note(cudaStreamEndCapture(first, &made.graph));
    throw;
  }
  check(cudaStreamEndCapture(first, &made.graph), "cudaStreamEndCapture");
  if (!ran) return {};
  check(cudaGraphInstantiate(&made.exec, made.graph, 0), "cudaGraphInstantiate");
  check(cudaGraphLaunch(made.exec, first), "cudaGraphLaunch");  // it uploads the graph
  check(cudaEventRecord(begin_, first), "cudaEventRecord");
  for (int i = 0; i < launches; ++i) check(cudaGraphLaunch(made.exec, first), "cudaGraphLaunch");
  check(cudaEventRecord(end_, first), "cudaEventRecord");
  check(cudaEventSynchronize(end_), "cudaEventSynchronize after timing an algorithm");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
  return {.ms = ms / static_cast<float>(launches * runs) / static_cast<float>(branches)};
}

SharedTimer::Time SharedTimer::time(const Run& run, std::size_t workspace_bytes, float most) {
  Memory workspaces;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
    if (!workspaces.add(workspace_bytes)) return {.lacks_memory = true};
  if (alone(run, workspaces.of_lanes[0]) < 0) return {};  // the first run loads its code
  const float once = alone(run, workspaces.of_lanes[0]);
  const std::size_t branches = once >= kFillsMs ? 1 : lanes_.size();
  const auto n = static_cast<float>(branches);
  // n runs at once take at least as long as one alone, so that a run's share is at least once / n.
  if (once < 0 || (most > 0 && once > kLaunchMs && once > most * n * kHopelessAlone))
    return {.ms = once};
  const float least = std::max(once, 1e-3f);
  const int runs = static_cast<int>(std::clamp<float>(kBranchMs / least, 1, kMostBranchRuns));
  const float expected = least * static_cast<float>(runs) * n;
  const int launches = static_cast<int>(std::clamp<float>(kGraphMs / expected, 2, kMostLaunches));
  return in_graph(run, workspaces.of_lanes, branches, runs, launches);
}

}  // namespace shmap::cuda
