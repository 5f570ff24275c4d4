#include "cuda/device/graph_choice.h"

#include <cuda_runtime_api.h>

#include "core/base/env.h"
#include "core/device/memory_space.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

// The objects of the trial, which are destroyed with it.
struct Trial {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;

  ~Trial() {
    if (exec != nullptr) note(cudaGraphExecDestroy(exec));
    if (graph != nullptr) note(cudaGraphDestroy(graph));
    for (cudaEvent_t event : {fork, join})
      if (event != nullptr) note(cudaEventDestroy(event));
    for (cudaStream_t s : {stream, other})
      if (s != nullptr) note(cudaStreamDestroy(s));
  }
};

constexpr std::size_t kBytes = 64;

}  // namespace

GraphsOf demanded_graphs() {
  const std::string asked = env::text(env::Var::graphs);
  if (asked == "auto") return GraphsOf::unknown;
  return asked == "one" ? GraphsOf::all_gpus : GraphsOf::each_gpu;
}

bool take_graphs_of_several_gpus(MemorySpace& space, int gpu, MemorySpace& other_space,
                                 int other_gpu) {
  const BufferRef memory = space.allocate(kBytes), other_memory = other_space.allocate(kBytes);
  Trial t;
  {
    const GpuScope scope(gpu);
    check(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaEventCreateWithFlags(&t.fork, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  {
    const GpuScope scope(other_gpu);
    check(cudaStreamCreateWithFlags(&t.other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaEventCreateWithFlags(&t.join, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  const GpuScope scope(gpu);
  check(cudaStreamBeginCapture(t.stream, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  cudaError_t code = cudaSuccess;
  const auto then = [&](auto call) {
    if (code == cudaSuccess) code = call();
  };
  then([&] { return cudaMemsetAsync(memory->data(), 0, kBytes, t.stream); });
  then([&] { return cudaEventRecord(t.fork, t.stream); });
  then([&] { return cudaStreamWaitEvent(t.other, t.fork, 0); });
  then([&] {
    const GpuScope other(other_gpu);  // a memset, unlike a copy, needs a stream of its own GPU
    return cudaMemsetAsync(other_memory->data(), 0, kBytes, t.other);
  });
  then([&] { return cudaEventRecord(t.join, t.other); });
  then([&] { return cudaStreamWaitEvent(t.stream, t.join, 0); });
  const cudaError_t ended = cudaStreamEndCapture(t.stream, &t.graph);  // called even after errors
  then([&] { return ended; });
  then([&] {
    return cudaGraphInstantiate(&t.exec, t.graph, cudaGraphInstantiateFlagUseNodePriority);
  });
  then([&] { return cudaGraphLaunch(t.exec, t.stream); });
  then([&] { return cudaStreamSynchronize(t.stream); });
  if (code == cudaSuccess) return true;
  if (is_sticky(code)) throw_cuda_error(code, "trying a graph of two GPUs");
  cudaGetLastError();
  return false;
}

}  // namespace shmap::cuda
