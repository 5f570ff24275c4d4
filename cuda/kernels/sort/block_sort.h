// Sorting in a block's shared memory. For the .cu files.
#pragma once
#include <cstdint>

#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/sort/sort_lines.h"

namespace shmap::cuda {
namespace {

// The power of two to which a line is padded.
inline int padded_line(std::int64_t len) {
  int n = 2;
  while (n < len) n *= 2;
  return n;
}
// A power of two of threads, at least a warp, at most kThreads.
inline int threads_of_line(int padded) {
  return padded < 2 * 32 ? 32 : padded / 2 < kThreads ? padded / 2 : kThreads;
}

// Sorts (key[i], at[i]), i < n, by key and then by `at`, with all threads of the block: a bitonic
// network. n is a power of two; at the end all results are visible to all threads.
template <class Key>
__device__ void sort_block(Key* key, std::uint32_t* at, int n) {
  __syncthreads();
  for (int run = 2; run <= n; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < n / 2; i += static_cast<int>(blockDim.x)) {
        const int a = 2 * i - (i & (distance - 1)), b = a + distance;
        const Key key_a = key[a], key_b = key[b];
        const std::uint32_t at_a = at[a], at_b = at[b];
        const bool swapped = key_b < key_a || (key_b == key_a && at_b < at_a);
        if (swapped != ((a & run) == 0)) continue;
        key[a] = key_b;
        key[b] = key_a;
        at[a] = at_b;
        at[b] = at_a;
      }
      __syncthreads();
    }
  }
}

}  // namespace
}  // namespace shmap::cuda
