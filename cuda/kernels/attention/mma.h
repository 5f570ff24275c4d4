// Matrix products of 16-bit floats by a warp: tiles of 16 × 8 × 16, summed in f32, and the loads of
// their operands from shared memory. For the .cu files.
//
// All lanes of the warp take part, and each holds its part of a tile. With g = lane / 4 and
// t = lane % 4, a word being two neighbours of a row (of B: of a column), the lower one in the low
// half:
//   A, 16 × 16: words (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)
//   B, 16 × 8:  words (2t, g), (2t + 8, g)
//   C, 16 × 8:  floats (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
// as in the PTX ISA for mma.m16n8k16. Beside the instructions stands the same operation in plain
// C++, for GPUs before sm_80 and for tests.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/kernels/embedded/scalar.h"

namespace shmap::cuda {

struct TileA {
  std::uint32_t word[4];
};
struct TileB {
  std::uint32_t word[2];
};
struct TileC {
  float value[4];
};

namespace mma_detail {

inline constexpr int kMostWarps = 32;  // of a block

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }
__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32; }

template <class T>
__device__ __forceinline__ float half_of(std::uint32_t word, int which) {
  return scalar::widen(T{static_cast<unsigned short>(word >> (16 * which))});
}

// The instructions in plain C++. Lanes exchange data through shared memory: each writes its words,
// then reads those it needs.
struct Operands {
  TileA a;
  TileB b;
};
template <class T>
__device__ inline void multiply_add(TileC& c, const TileA& a, const TileB& b) {
  __shared__ Operands all[kMostWarps][32];
  Operands* const mine = all[warp()];
  mine[lane()] = {a, b};
  __syncwarp();
  const int g = lane() / 4, t = lane() % 4;
  for (int k = 0; k < 16; ++k) {
    const int word = k / 8, from = k % 8 / 2, which = k % 2;
    const TileA& row = mine[4 * g + from].a;
    const float upper = half_of<T>(row.word[2 * word], which);
    const float lower = half_of<T>(row.word[2 * word + 1], which);
    for (int j = 0; j < 2; ++j) {
      const float column = half_of<T>(mine[4 * (2 * t + j) + from].b.word[word], which);
      c.value[j] = __fmaf_rn(upper, column, c.value[j]);
      c.value[2 + j] = __fmaf_rn(lower, column, c.value[2 + j]);
    }
  }
  __syncwarp();
}
__device__ inline void load_tiles(std::uint32_t (&words)[4], const void* row, bool transposed) {
  __shared__ const unsigned char* rows[kMostWarps][32];
  const unsigned char** const mine = rows[warp()];
  mine[lane()] = static_cast<const unsigned char*>(row);
  __syncwarp();
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    std::uint16_t low, high;
    if (transposed) {
      memcpy(&low, mine[8 * i + 2 * t] + 2 * g, 2);
      memcpy(&high, mine[8 * i + 2 * t + 1] + 2 * g, 2);
    } else {
      memcpy(&low, mine[8 * i + g] + 4 * t, 2);
      memcpy(&high, mine[8 * i + g] + 4 * t + 2, 2);
    }
    words[i] = low | static_cast<std::uint32_t>(high) << 16;
  }
  __syncwarp();
}

}  // namespace mma_detail

// c += a b. T: F16 or Bf16.
template <class T>
__device__ __forceinline__ void multiply_add(TileC& c, const TileA& a, const TileB& b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SHMAP_MMA(type)                                                                 \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                            \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
      : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3])          \
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), \
        "r"(b.word[1]))
  if constexpr (std::is_same_v<T, F16>)
    SHMAP_MMA("f16");
  else
    SHMAP_MMA("bf16");
#undef SHMAP_MMA
#else
  mma_detail::multiply_add<T>(c, a, b);
#endif
}

// Loads four 8 × 8 tiles of 16-bit elements from shared memory: lanes 8i … 8i + 7 give the
// addresses of the rows of tile i, 16 bytes each, at multiples of 16. Word i of a lane is (g, 2t)
// of tile i or, transposed, (2t, g) and its lower neighbour.
__device__ __forceinline__ void load_tiles(std::uint32_t (&words)[4], const void* row) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
#else
  mma_detail::load_tiles(words, row, false);
#endif
}
__device__ __forceinline__ void load_tiles_transposed(std::uint32_t (&words)[4], const void* row) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
#else
  mma_detail::load_tiles(words, row, true);
#endif
}

// Two floats rounded to T (to nearest even), `low` in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t word;
  if constexpr (std::is_same_v<T, F16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return scalar::narrow<T>(low).bits | static_cast<std::uint32_t>(scalar::narrow<T>(high).bits)
                                           << 16;
#endif
}

}  // namespace shmap::cuda
