// A second implementation of threefry2x32, to check or bound the library's: the hash of a
// count, and the uniform from whose bits a standard normal is computed. Compiles as C++20 and
// as CUDA.
#pragma once
#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define SHMAP_BENCH_BOTH __host__ __device__ __forceinline__
#else
#define SHMAP_BENCH_BOTH inline
#endif

namespace shmap::bench {

// The u32 of random bits at a flat index below 2^32: both words of the hash of (0, index).
SHMAP_BENCH_BOTH std::uint32_t threefry_bits(std::uint32_t key0, std::uint32_t key1,
                                             std::uint32_t index) {
  const std::uint32_t keys[3] = {key0, key1, key0 ^ key1 ^ 0x1BD11BDAu};
  const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  std::uint32_t x = keys[0], y = index + keys[1];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (unsigned int group = 0; group < 5; ++group) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = 0; k < 4; ++k) {
      const int turn = turns[group % 2][k];
      x += y;
      y = (y << turn | y >> (32 - turn)) ^ x;
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + group + 1;
  }
  return x ^ y;
}

// A uniform in (-1, 1) from the upper 23 bits. A normal is computed from it by the inverse error
// function.
SHMAP_BENCH_BOTH float symmetric_uniform(std::uint32_t bits) {
  const std::uint32_t from_one = bits >> 9 | 0x3F800000u;
#if defined(__CUDA_ARCH__)
  const float unit = __uint_as_float(from_one) - 1.0f;
#else
  const float unit = std::bit_cast<float>(from_one) - 1.0f;
#endif
  constexpr float kLeast = -0x1.fffffep-1f;
  const float wide = unit * (1.0f - kLeast) + kLeast;
  return wide < kLeast ? kLeast : wide;
}

}  // namespace shmap::bench
