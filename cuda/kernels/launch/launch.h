// Launches kernels, and chooses grids. For the .cu files.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "cuda/driver/graph_resource.h"
#include "cuda/kernels/embedded/dependent_launch.h"

// SHMAP_UNROLL, before a loop of a known number of iterations: unrolls it. SHMAP_CONSTANT, before a
// kernel's parameter: keeps it in constant memory even if it is indexed.
#if defined(__CUDACC__)
#define SHMAP_UNROLL _Pragma("unroll")
#define SHMAP_CONSTANT __grid_constant__
#else
#define SHMAP_UNROLL
#define SHMAP_CONSTANT
#endif

namespace shmap::cuda {

// Throws as throw_cuda_error (cuda/driver/error.h) does; `what` names the kernel. `status`: a
// cudaError_t.
[[noreturn]] void throw_launch_error(const char* what, int status);
// Throws Error: there is no such kernel for the dtype, or the size of elements, that a call wants.
[[noreturn]] void throw_no_kernel(const char* kernel);

// Throws ValueError: `kernel` would take more blocks than a grid has.
[[noreturn]] void throw_too_many_blocks(const char* kernel, std::int64_t blocks);

// Threads of a block, unless a kernel needs another number.
inline constexpr int kThreads = 256;
// The most blocks of a grid, several waves of the largest GPU: a grid-stride loop handles further
// items.
inline constexpr std::int64_t kMaxBlocks = 1 << 14;

// Blocks for `items` (at least 1) of a grid-stride loop in which a thread handles one item at a
// time.
inline dim3 grid_for(std::int64_t items, int threads = kThreads) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
}

// The most blocks that a grid has along x.
inline constexpr std::int64_t kMostGridBlocks = (std::int64_t{1} << 31) - 1;

// A grid of that many blocks, each of which handles one item. Throws ValueError where they are too
// many.
inline dim3 grid_of(const char* kernel, std::int64_t blocks) {
  if (blocks > kMostGridBlocks) throw_too_many_blocks(kernel, blocks);
  return dim3(static_cast<unsigned>(blocks));
}

// True if indices below n, and the last step of a grid-stride loop beyond n, fit in 32 bits.
inline bool fits_32_bits(std::int64_t n) { return n < (std::int64_t{1} << 31); }
// Calls f(std::uint32_t{}) or f(std::int64_t{}): a type for indices below n.
template <class F>
void with_index(std::int64_t n, F&& f) {
  if (fits_32_bits(n))
    f(std::uint32_t{});
  else
    f(std::int64_t{});
}

// Whether this source's kernels wait for their predecessors: compiled for GPUs before sm_90, the
// wait is empty.
#if defined(__CUDA_ARCH_LIST__)
inline constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
inline constexpr bool kKernelsWait = [] {
  for (const int architecture : kArchitectures)
    if (architecture < 900) return false;
  return true;
}();
#else
inline constexpr bool kKernelsWait = true;
#endif

// Enqueues kernel(args...) with this configuration, as a dependent launch where that is allowed.
template <class... Params, class... Args>
cudaError_t launch_kernel(cudaLaunchConfig_t config, void (*kernel)(Params...), Args&&... args) {
  cudaLaunchAttribute dependent = {};
  if (kKernelsWait && launches_dependently()) {
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &dependent;
    config.numAttrs = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

// Enqueues kernel(args...) on `native_stream`, a cudaStream_t. `name` is for the error's text.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block, void* native_stream,
            Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = static_cast<cudaStream_t>(native_stream);
  const cudaError_t status = launch_kernel(config, kernel, std::forward<Args>(args)...);
  if (status != cudaSuccess) throw_launch_error(name, static_cast<int>(status));
}

}  // namespace shmap::cuda
