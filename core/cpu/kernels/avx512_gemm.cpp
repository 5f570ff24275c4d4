// Products of f32 by AVX-512: 14 rows by 32 columns of sums stay in registers over a block of k, of
// which every element of a is broadcast to two fused operations.
//
// A block of b is packed into panels of 32 columns that stay in the second cache while all rows of
// a pass; of those a tile of 14 at a time is copied to where no two of its lines meet in the first
// cache. So the inner loop reads one stream, b, and fetches it ahead.
#include "core/cpu/kernels/gemm_engines.h"

#if defined(__x86_64__)

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12's headers start from such values
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/copy_transpose.h"

namespace shmap::cpu {
namespace {

#define SHMAP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

constexpr std::int64_t kRows = 14, kLanes = 16, kPanel = 2 * kLanes;

// Measured with 48 KiB of first and 2 MiB of second cache.
constexpr std::int64_t kMaxK = 256;        // longer sums are cut into blocks of k
constexpr std::int64_t kBlockB = 1 << 18;  // elements of a block of b
constexpr std::int64_t kLdA = kMaxK + kLanes;
constexpr std::int64_t kAheadB = 1024;  // bytes

// Left to itself, GCC reads the element twice, as an operand of both operations, and the loads
// become what the loop waits for.
SHMAP_AVX512 inline __m512 broadcast(const float* p) {
  __m512 v;
  __asm__("vbroadcastss %1, %0" : "=v"(v) : "m"(*p));
  return v;
}

// c = or, with add, += the product of rows of a, kLdA apart, and a panel of b.
template <int rows>
SHMAP_AVX512 void multiply(std::int64_t k, const float* a, const float* b, float* c,
                           std::int64_t ldc, bool add) {
  __m512 left[rows], right[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) left[r] = right[r] = _mm512_setzero_ps();
  for (std::int64_t l = 0; l < k; ++l, ++a, b += kPanel) {
    const __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + kLanes);
    const auto* const ahead = reinterpret_cast<const char*>(b) + kAheadB;
    _mm_prefetch(ahead, _MM_HINT_T0);
    _mm_prefetch(ahead + 64, _MM_HINT_T0);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m512 x = broadcast(a + r * kLdA);
      left[r] = _mm512_fmadd_ps(x, b0, left[r]);
      right[r] = _mm512_fmadd_ps(x, b1, right[r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r, c += ldc) {
    if (add) {
      left[r] = _mm512_add_ps(_mm512_loadu_ps(c), left[r]);
      right[r] = _mm512_add_ps(_mm512_loadu_ps(c + kLanes), right[r]);
    }
    _mm512_storeu_ps(c, left[r]);
    _mm512_storeu_ps(c + kLanes, right[r]);
  }
}

using Multiply = void (*)(std::int64_t, const float*, const float*, float*, std::int64_t, bool);
constexpr Multiply kMultiply[kRows + 1] = {nullptr,      multiply<1>,  multiply<2>,  multiply<3>,
                                           multiply<4>,  multiply<5>,  multiply<6>,  multiply<7>,
                                           multiply<8>,  multiply<9>,  multiply<10>, multiply<11>,
                                           multiply<12>, multiply<13>, multiply<14>};

SHMAP_AVX512 __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, kLanes)) - 1);
}

// The first columns of a tile of whole panels to where they belong.
SHMAP_AVX512 void put(const float* tile, std::int64_t rows, std::int64_t cols, float* c,
                      std::int64_t ldc, bool add) {
  for (std::int64_t r = 0; r < rows; ++r, tile += kPanel, c += ldc) {
    for (std::int64_t j = 0; j < cols; j += kLanes) {
      const __mmask16 mask = first_lanes(cols - j);
      __m512 v = _mm512_load_ps(tile + j);
      if (add) v = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c + j), v);
      _mm512_mask_storeu_ps(c + j, mask, v);
    }
  }
}

const float* at(const void* base, std::int64_t offset) {
  return static_cast<const float*>(base) + offset;
}

// kb rows of b from k0 on, of nb columns from n0 on, as panels padded with zeros.
SHMAP_AVX512 void pack_b(const Gemm& g, std::int64_t k0, std::int64_t kb, std::int64_t n0,
                         std::int64_t nb, float* panels) {
  if (g.trans_b) {
    for (std::int64_t j = 0; j < nb; j += kPanel) {
      float* const to = panels + j * kb;
      const std::int64_t cols = std::min(kPanel, nb - j);
      if (cols < kPanel) std::fill(to, to + kb * kPanel, 0.f);
      transpose(reinterpret_cast<char*>(to), kPanel * 4,
                reinterpret_cast<const char*>(at(g.b, (n0 + j) * g.ldb + k0)), g.ldb * 4, kb, cols,
                4);
    }
    return;
  }
  for (std::int64_t l = 0; l < kb; ++l) {
    const float* const from = at(g.b, (k0 + l) * g.ldb + n0);
    for (std::int64_t j = 0; j < nb; j += kPanel) {
      float* const to = panels + j * kb + l * kPanel;
      const __mmask16 left = first_lanes(nb - j), right = first_lanes(nb - j - kLanes);
      _mm512_store_ps(to, _mm512_maskz_loadu_ps(left, from + j));
      _mm512_store_ps(to + kLanes, _mm512_maskz_loadu_ps(right, from + j + kLanes));
    }
  }
}

// Rows of kb elements of a.
SHMAP_AVX512 void copy_a(const Gemm& g, std::int64_t m0, std::int64_t rows, std::int64_t k0,
                         std::int64_t kb, float* tile) {
  if (g.trans_a) {
    transpose(reinterpret_cast<char*>(tile), kLdA * 4,
              reinterpret_cast<const char*>(at(g.a, k0 * g.lda + m0)), g.lda * 4, rows, kb, 4);
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const from = at(g.a, (m0 + r) * g.lda + k0);
    for (std::int64_t l = 0; l < kb; l += kLanes) {
      const __mmask16 mask = first_lanes(kb - l);
      _mm512_store_ps(tile + r * kLdA + l, _mm512_maskz_loadu_ps(mask, from + l));
    }
  }
}

// The size of the fewest equal blocks, multiples of `unit`, that hold `size` with at most `most`.
std::int64_t even_block(std::int64_t size, std::int64_t most, std::int64_t unit) {
  const auto ceil_div = [](std::int64_t x, std::int64_t y) { return (x + y - 1) / y; };
  const std::int64_t blocks = ceil_div(size, std::max(most / unit * unit, unit));
  return ceil_div(ceil_div(size, blocks), unit) * unit;
}

struct Panels;  // which names the scratch memory

SHMAP_AVX512 void run(const Gemm& g) {
  const std::int64_t k_block = even_block(g.k, kMaxK, kLanes);
  const std::int64_t n_block = even_block(g.n, kBlockB / k_block, kPanel);
  constexpr std::int64_t tile_size = kRows * kLdA, sums_size = kRows * kPanel;
  // Past its end kAheadB is fetched, never read.
  float* const tile = static_cast<float*>(kept_by_thread<GemmScratch, Panels>().get(
      static_cast<std::size_t>(4 * (tile_size + sums_size + n_block * k_block))));
  float* const sums = tile + tile_size;
  float* const panels = sums + sums_size;
  const std::int64_t tiles = (g.m + kRows - 1) / kRows;
  for (std::int64_t n0 = 0; n0 < g.n; n0 += n_block) {
    const std::int64_t nb = std::min(n_block, g.n - n0);
    for (std::int64_t k0 = 0; k0 < g.k; k0 += k_block) {
      const std::int64_t kb = std::min(k_block, g.k - k0);
      const bool add = g.accumulate || k0 > 0;
      pack_b(g, k0, kb, n0, nb, panels);
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t m0 = g.m * t / tiles, rows = g.m * (t + 1) / tiles - m0;
        copy_a(g, m0, rows, k0, kb, tile);
        const Multiply multiply_rows = kMultiply[rows];
        float* const row = static_cast<float*>(g.c) + m0 * g.ldc + n0;
        for (std::int64_t j = 0; j < nb; j += kPanel) {
          if (j + kPanel <= nb) {
            multiply_rows(kb, tile, panels + j * kb, row + j, g.ldc, add);
          } else {
            multiply_rows(kb, tile, panels + j * kb, sums, kPanel, false);
            put(sums, rows, nb - j, row + j, g.ldc, add);
          }
        }
      }
    }
  }
}

// Measured on Intel's: on AMD's OpenBLAS is preferred.
bool usable() {
  return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool supports(DType dtype, DType out) {
  static const bool here = usable();
  return here && dtype == f32 && out == f32;
}

}  // namespace

const GemmLibrary* avx512_gemm() {
  static constexpr GemmLibrary library = {supports, run};
  return &library;
}

}  // namespace shmap::cpu

#else

namespace shmap::cpu {
const GemmLibrary* avx512_gemm() { return nullptr; }
}  // namespace shmap::cpu

#endif
