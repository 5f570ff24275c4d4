// nccl_smoke: NCCL with one rank on GPU 0, which is as much of it as a machine with one GPU can
// run: opening the library, a communicator, a sum over all ranks at once and captured into a graph.
// Ends with 77, by which CTest knows a skipped test, where the library is absent.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/nccl/nccl_api.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"

namespace {

using shmap::cuda::check;
namespace nccl = shmap::nccl;

constexpr std::size_t kItems = 1000;

class Smoke {
 public:
  Smoke() {
    const int gpu = 0;
    nccl::check(nccl::api().init_all(&comm_, 1, &gpu), "ncclCommInitAll");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMalloc(reinterpret_cast<void**>(&from_), kItems * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(reinterpret_cast<void**>(&to_), kItems * sizeof(float)), "cudaMalloc");
  }
  ~Smoke() {
    cudaFree(to_);
    cudaFree(from_);
    cudaStreamDestroy(stream_);
    nccl::api().destroy(comm_);
  }
  Smoke(const Smoke&) = delete;
  Smoke& operator=(const Smoke&) = delete;

  void run_at_once() {
    fill(1);
    sum();
    expect(1, "at once");
  }
  void run_captured() {
    fill(2);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    sum();
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&exec, graph, 0ULL), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    for (int launch = 2; launch < 5; ++launch) {
      fill(launch);
      check(cudaGraphLaunch(exec, stream_), "cudaGraphLaunch");
      expect(launch, "captured");
    }
    check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  }

 private:
  void sum() {
    nccl::check(nccl::api().all_reduce(from_, to_, kItems, ncclFloat32, ncclSum, comm_, stream_),
                "ncclAllReduce", comm_);
  }
  static float item(std::size_t i, int round) {
    return static_cast<float>(i) * 0.5f + static_cast<float>(round);
  }
  void fill(int round) {
    std::vector<float> values(kItems);
    for (std::size_t i = 0; i < kItems; ++i) values[i] = item(i, round);
    check(cudaMemcpyAsync(from_, values.data(), kItems * sizeof(float), cudaMemcpyHostToDevice,
                          stream_),
          "cudaMemcpyAsync");
    check(cudaMemsetAsync(to_, 0xff, kItems * sizeof(float), stream_), "cudaMemsetAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void expect(int round, const char* how) {
    std::vector<float> values(kItems);
    check(cudaMemcpyAsync(values.data(), to_, kItems * sizeof(float), cudaMemcpyDeviceToHost,
                          stream_),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    for (std::size_t i = 0; i < kItems; ++i) {
      if (values[i] == item(i, round)) continue;
      throw std::runtime_error("the sum over one rank, " + std::string(how) + ", has " +
                               std::to_string(values[i]) + " at " + std::to_string(i) + " for " +
                               std::to_string(item(i, round)));
    }
  }

  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  float *from_ = nullptr, *to_ = nullptr;
};

}  // namespace

int main() {
  std::string why;
  const nccl::Api* const api = nccl::find(&why);
  if (api == nullptr) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  try {
    const shmap::cuda::GpuScope gpu(0);
    Smoke smoke;
    smoke.run_at_once();
    smoke.run_captured();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "nccl_smoke: %s\n", e.what());
    return 1;
  }
  std::printf("NCCL %s, one rank: a sum at once and captured is right\n",
              nccl::version_text(api->version).c_str());
  return 0;
}
