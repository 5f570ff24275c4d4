// The library's own blocked matrix product: every dtype, any CPU. Operands are packed into panels
// of the compute type (half types as f32; integers as unsigned, i8 as 16 bits wide, which is exact
// modulo 2^8), a register tile is summed over a block of k, and blocks of k are added up in the
// compute type, so that half types are rounded once.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/base/round_up.h"
#include "core/base/thread_kept.h"
#include "core/cpu/kernels/matmul/gemm_engines.h"
#include "shmap/error.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

constexpr int kMaxTile = 14 * 128;  // elements of the largest register tile, of 1-byte elements

template <class T>
struct MicroKernel {
  int rows, cols;
  void (*run)(std::int64_t k, const T* a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc,
              bool add);
};

#define SHMAP_GEMM_SIMD baseline
#define SHMAP_GEMM_BYTES 16
#define SHMAP_GEMM_ROWS 4
#include "core/cpu/kernels/matmul/gemm_own_kernel.h"
#undef SHMAP_GEMM_SIMD
#undef SHMAP_GEMM_BYTES
#undef SHMAP_GEMM_ROWS

#if defined(__x86_64__)

// The pragmas also let a * b + c become one fused operation, in floating point.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#pragma GCC target("avx2,fma")
#endif
#define SHMAP_GEMM_SIMD avx2
#define SHMAP_GEMM_BYTES 32
#define SHMAP_GEMM_ROWS 6
#include "core/cpu/kernels/matmul/gemm_own_kernel.h"
#undef SHMAP_GEMM_SIMD
#undef SHMAP_GEMM_BYTES
#undef SHMAP_GEMM_ROWS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#define SHMAP_GEMM_SIMD avx512
#define SHMAP_GEMM_BYTES 64
#define SHMAP_GEMM_ROWS 14
#include "core/cpu/kernels/matmul/gemm_own_kernel.h"
#undef SHMAP_GEMM_SIMD
#undef SHMAP_GEMM_BYTES
#undef SHMAP_GEMM_ROWS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

enum class Level { baseline, avx2, avx512 };

Level cpu_level() {
#if defined(__x86_64__)
  static const Level level = [] {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Level::baseline;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return wide ? Level::avx512 : Level::avx2;
  }();
  return level;
#else
  return Level::baseline;
#endif
}

template <class T, bool kLogical>
MicroKernel<T> best_kernel(std::int64_t m) {
#if defined(__x86_64__)
  if (cpu_level() == Level::avx512) return avx512::kernel<T, kLogical>(m);
  if (cpu_level() == Level::avx2) return avx2::kernel<T, kLogical>(m);
#endif
  return baseline::kernel<T, kLogical>(m);
}

template <class Compute, class Stored>
Compute load(Stored v) {
  if constexpr (std::is_floating_point_v<Compute>)
    return static_cast<Compute>(static_cast<float>(v));
  else
    return static_cast<Compute>(v);
}
template <>
double load<double, double>(double v) {
  return v;
}

// Packs rows [0, rows) × k of a matrix, whose element (r, l) is at src[r * row_stride + l *
// k_stride], into panels of `panel` rows: panel p holds, for each l, rows p * panel … + panel,
// padded with zeros.
template <class Compute, class Stored>
void pack(const Stored* src, std::int64_t row_stride, std::int64_t k_stride, std::int64_t rows,
          std::int64_t k, int panel, Compute* dst) {
  for (std::int64_t r0 = 0; r0 < rows; r0 += panel) {
    const int here = static_cast<int>(std::min<std::int64_t>(panel, rows - r0));
    const Stored* const from = src + r0 * row_stride;
    if (row_stride == 1) {
      for (std::int64_t l = 0; l < k; ++l) {
        const Stored* const line = from + l * k_stride;
        Compute* const out = dst + l * panel;
        for (int r = 0; r < here; ++r) out[r] = load<Compute>(line[r]);
        for (int r = here; r < panel; ++r) out[r] = Compute{};
      }
    } else {
      for (int r = 0; r < here; ++r) {
        const Stored* const line = from + r * row_stride;
        for (std::int64_t l = 0; l < k; ++l) dst[l * panel + r] = load<Compute>(line[l * k_stride]);
      }
      for (int r = here; r < panel; ++r)
        for (std::int64_t l = 0; l < k; ++l) dst[l * panel + r] = Compute{};
    }
    dst += panel * k;
  }
}

// sum[0 … rows) × [0 … cols) += or = tile
template <class Compute, bool kLogical>
void add_tile(const Compute* tile, int tile_cols, std::int64_t rows, std::int64_t cols,
              Compute* sum, std::int64_t ld, bool add) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const Compute* const from = tile + r * tile_cols;
    Compute* const to = sum + r * ld;
    if (!add)
      for (std::int64_t c = 0; c < cols; ++c) to[c] = from[c];
    else if constexpr (kLogical)
      for (std::int64_t c = 0; c < cols; ++c) to[c] = static_cast<Compute>(to[c] | from[c]);
    else
      for (std::int64_t c = 0; c < cols; ++c) to[c] = static_cast<Compute>(to[c] + from[c]);
  }
}

template <class Out, class Compute>
Out store(Compute v) {
  return static_cast<Out>(v);
}

struct PackBuffers {
  GemmScratch a, b, sum;
};

template <class Stored, class Compute, class Out, bool kLogical>
void blocked(const Gemm& g) {
  // Block sizes in elements: a panel of b stays in the first-level cache, a block of a in the
  // second.
  constexpr std::int64_t size = static_cast<std::int64_t>(sizeof(Compute));
  constexpr std::int64_t k_block = 1024 / std::max<std::int64_t>(size, 2);
  constexpr std::int64_t n_block = 8192 / std::max<std::int64_t>(size, 2);
  constexpr bool direct = std::is_same_v<Compute, Out>;
  constexpr bool same = std::is_same_v<Compute, Stored>;

  PackBuffers& buffers = kept_by_thread<PackBuffers>();
  const MicroKernel<Compute> kernel = best_kernel<Compute, kLogical>(g.m);
  const std::int64_t m_block = 16 * kernel.rows;
  const auto* const a = static_cast<const Stored*>(g.a);
  const auto* const b = static_cast<const Stored*>(g.b);
  auto* const c = static_cast<Out*>(g.c);
  const std::int64_t a_row = g.trans_a ? 1 : g.lda, a_k = g.trans_a ? g.lda : 1;
  const std::int64_t b_col = g.trans_b ? g.ldb : 1, b_k = g.trans_b ? 1 : g.ldb;

  const std::int64_t kb_max = std::min(g.k, k_block);
  const std::int64_t mb_max = round_up(std::min(g.m, m_block), kernel.rows);
  const std::int64_t nb_max = round_up(std::min(g.n, n_block), kernel.cols);
  auto* const packed_a =
      static_cast<Compute*>(buffers.a.get(static_cast<std::size_t>(mb_max * kb_max * size)));
  auto* const packed_b =
      static_cast<Compute*>(buffers.b.get(static_cast<std::size_t>(nb_max * kb_max * size)));
  // If only a few rows use b, it is read in place; only the columns beyond whole tiles are packed.
  const bool in_place = same && !g.trans_b && g.m <= 2 * kernel.rows;
  Compute* sum = nullptr;
  if constexpr (!direct) {
    const std::int64_t cols = std::min(g.n, n_block);
    sum = static_cast<Compute*>(buffers.sum.get(static_cast<std::size_t>(g.m * cols * size)));
  }
  alignas(64) Compute tile[kMaxTile];

  for (std::int64_t n0 = 0; n0 < g.n; n0 += n_block) {
    const std::int64_t nb = std::min(n_block, g.n - n0);
    const std::int64_t sum_ld = direct ? g.ldc : nb;
    if constexpr (direct) sum = c + n0;
    for (std::int64_t k0 = 0; k0 < g.k; k0 += k_block) {
      const std::int64_t kb = std::min(k_block, g.k - k0);
      const bool add = k0 > 0 || (direct && g.accumulate);
      const Stored* const block_b = b + n0 * b_col + k0 * b_k;
      const std::int64_t packed_from = in_place ? nb / kernel.cols * kernel.cols : 0;
      pack(block_b + packed_from * b_col, b_col, b_k, nb - packed_from, kb, kernel.cols, packed_b);
      for (std::int64_t m0 = 0; m0 < g.m; m0 += m_block) {
        const std::int64_t mb = std::min(m_block, g.m - m0);
        pack(a + m0 * a_row + k0 * a_k, a_row, a_k, mb, kb, kernel.rows, packed_a);
        for (std::int64_t j = 0; j < nb; j += kernel.cols) {
          const Compute* panel_b = packed_b + (j - packed_from) * kb;
          std::int64_t ldb = kernel.cols;
          if constexpr (same) {
            if (j < packed_from) panel_b = block_b + j, ldb = g.ldb;
          }
          for (std::int64_t i = 0; i < mb; i += kernel.rows) {
            const std::int64_t rows = std::min<std::int64_t>(kernel.rows, mb - i);
            const std::int64_t cols = std::min<std::int64_t>(kernel.cols, nb - j);
            const Compute* const panel_a = packed_a + i * kb;
            Compute* const to = sum + (m0 + i) * sum_ld + j;
            if (rows == kernel.rows && cols == kernel.cols) {
              kernel.run(kb, panel_a, panel_b, ldb, to, sum_ld, add);
            } else {
              kernel.run(kb, panel_a, panel_b, ldb, tile, kernel.cols, false);
              add_tile<Compute, kLogical>(tile, kernel.cols, rows, cols, to, sum_ld, add);
            }
          }
        }
      }
    }
    if constexpr (!direct) {
      for (std::int64_t i = 0; i < g.m; ++i) {
        const Compute* const from = sum + i * sum_ld;
        Out* const to = c + i * g.ldc + n0;
        for (std::int64_t j = 0; j < nb; ++j) {
          to[j] = store<Out>(g.accumulate ? static_cast<Compute>(load<Compute>(to[j]) + from[j])
                                          : from[j]);
        }
      }
    }
  }
}

// The rows whose sums are kept in the compute type at a time, where that is not the result's:
// enough to make up for packing b again for the next ones.
constexpr std::int64_t kSumRows = 2048;

template <class Stored, class Compute, class Out, bool kLogical>
void in_stretches(const Gemm& g) {
  if (std::is_same_v<Compute, Out> || g.m <= kSumRows)
    return blocked<Stored, Compute, Out, kLogical>(g);
  const std::int64_t rows =
      even_block(g.m, kSumRows, 16 * best_kernel<Compute, kLogical>(g.m).rows);
  for (std::int64_t m = 0; m < g.m; m += rows)
    blocked<Stored, Compute, Out, kLogical>(gemm_block(g, m, std::min(g.m, m + rows), 0, g.n));
}

}  // namespace

void own_gemm(const Gemm& g) {
  if (g.dtype == prng_key)
    throw TypeError(std::string("matmul: no product of ") + short_name(g.dtype));
  with_plain(g.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) {
      in_stretches<std::uint8_t, std::uint8_t, std::uint8_t, true>(g);
    } else if constexpr (std::is_integral_v<T>) {
      using Bits = std::make_unsigned_t<T>;
      using Compute = std::conditional_t<sizeof(T) == 1, std::uint16_t, Bits>;
      in_stretches<Bits, Compute, Bits, false>(g);
    } else if constexpr (std::is_arithmetic_v<T>) {
      in_stretches<T, T, T, false>(g);
    } else if (g.out == f32) {
      in_stretches<T, float, float, false>(g);
    } else {
      in_stretches<T, float, T, false>(g);
    }
  });
}

}  // namespace shmap::cpu
