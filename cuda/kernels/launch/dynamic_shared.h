// Shared memory whose size is set at launch, which may be more than the 48 KB that a kernel may
// declare. For the .cu files.
//
//   __global__ void kernel(...) {
//     SHMAP_DYNAMIC_SHARED(memory);  // unsigned char*, aligned to 128 bytes
#pragma once
#include "cuda/kernels/launch/launch.h"

#if defined(__CUDACC__)
#define SHMAP_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#else
#define SHMAP_DYNAMIC_SHARED(name) \
  unsigned char* const name = static_cast<unsigned char*>(shmap_sim::dynamic_shared())
#endif

namespace shmap::cuda {

// As launch(), with `shared_bytes` of dynamic shared memory for each block. A size that the current
// GPU does not have is a launch error.
template <class... Params, class... Args>
void launch_with_shared(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block,
                        int shared_bytes, void* native_stream, Args&&... args) {
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (status == cudaSuccess) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = static_cast<cudaStream_t>(native_stream);
    status = launch_kernel(config, kernel, std::forward<Args>(args)...);
  }
  if (status != cudaSuccess) throw_launch_error(name, static_cast<int>(status));
}

}  // namespace shmap::cuda
