#include "cuda/device/memory.h"

#include <cuda_runtime_api.h>

#include <limits>
#include <utility>

#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {
// The share of all memory that the host may have freed ahead of the GPU before allocations wait
// for the GPU. With a smaller share, the host waits too often to keep tasks on large arrays
// queued.
constexpr std::int64_t kPendingShare = 4;
}  // namespace

// Blocks are returned to the driver only when memory is short, because cudaFree waits for the GPU.
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
  } catch (const DeviceError&) {  // the GPU is lost
  }
  health_->check("allocating memory");  // a lost GPU does not lack memory
  return nullptr;
}

void CudaMemorySpace::unmap(void* data, std::int64_t) noexcept { free_memory(gpu_, data); }

}  // namespace shmap::cuda
