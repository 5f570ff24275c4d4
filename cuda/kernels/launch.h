// Launching kernels: the one place that calls the runtime for it, and the choice of grids. For the
// .cu files.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

// SHMAP_UNROLL, before a loop of a known number of iterations: take it apart. SHMAP_CONSTANT, of a
// kernel's parameter: it stays where it was handed over, however it is indexed.
#if defined(__CUDACC__)
#define SHMAP_UNROLL _Pragma("unroll")
#define SHMAP_CONSTANT __grid_constant__
#else
#define SHMAP_UNROLL
#define SHMAP_CONSTANT
#endif

namespace shmap::cuda {

// Throws what throw_cuda_error (cuda/device/error.h) does, naming what could not be enqueued.
// `status`: a cudaError_t.
[[noreturn]] void throw_launch_error(const char* what, int status);

// Threads a block where a kernel has no reason for another number.
inline constexpr int kThreads = 256;
// Beyond this many blocks a grid-stride loop takes the rest: several waves of the largest GPU.
inline constexpr std::int64_t kMaxBlocks = 1 << 14;

// Blocks for `items` (at least 1) of which each thread takes one at a time in a grid-stride loop.
inline dim3 grid_for(std::int64_t items, int threads = kThreads) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
}

// Whether indices below n, and a grid-stride loop's last step beyond n, fit 32 bits.
inline bool fits_32_bits(std::int64_t n) { return n < (std::int64_t{1} << 31); }
// Calls f(std::uint32_t{}) or f(std::int64_t{}): a type for indices below n.
template <class F>
void with_index(std::int64_t n, F&& f) {
  if (fits_32_bits(n))
    f(std::uint32_t{});
  else
    f(std::int64_t{});
}

// Enqueues kernel(args...) on `native_stream`, a cudaStream_t. `name` is for the error's text.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block, void* native_stream,
            Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = static_cast<cudaStream_t>(native_stream);
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (status != cudaSuccess) throw_launch_error(name, static_cast<int>(status));
}

}  // namespace shmap::cuda
