#include "cuda/device/memory.h"

#include <cuda_runtime_api.h>

#include <limits>
#include <utility>

#include "cuda/device/error.h"
#include "cuda/device/gpus.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {
// What the host may have freed ahead of the GPU before allocation waits for it: that share of the
// memory that there is. A host that waits more often does not keep large arrays' tasks coming.
constexpr std::int64_t kPendingShare = 4;
}  // namespace

// Blocks are not given back to the driver before memory is short: cudaFree waits for the GPU.
CudaMemorySpace::CudaMemorySpace(int id, std::string name, int gpu, std::int64_t limit,
                                 std::int64_t bytes, Ref<Health> health)
    : MemorySpace(id, std::move(name), limit, std::numeric_limits<std::int64_t>::max()),
      gpu_(gpu),
      health_(std::move(health)) {
  reuse_pending(bytes / kPendingShare);
}

CudaMemorySpace::~CudaMemorySpace() {
  reclaim();
  trim();
}

void* CudaMemorySpace::map(std::int64_t bytes) {
  try {
    const GpuScope gpu(gpu_);
    const UncapturedCalls uncaptured;
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, static_cast<std::size_t>(bytes));
    if (code == cudaSuccess) return data;
    note(code);
  } catch (const DeviceError&) {  // the GPU does not answer
  }
  health_->check("allocating memory");  // memory is not what a lost GPU lacks
  return nullptr;
}

void CudaMemorySpace::unmap(void* data, std::int64_t) noexcept {
  const UncapturedCalls uncaptured;
  note(cudaFree(data));
}

}  // namespace shmap::cuda
