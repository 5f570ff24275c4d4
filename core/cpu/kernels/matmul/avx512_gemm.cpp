// Products of f32 and f64 with AVX-512. The sums of 14 rows by two vectors stay in registers for a
// block of k; each element of a is broadcast and used by two fused operations.
//
// A block of b is packed into panels of two vectors of columns, which stay in the second-level
// cache for all rows. A tile of 14 rows of a at a time is copied to memory where no two of its
// lines share a set of the first-level cache. So the inner loop reads one stream, b, and prefetches
// it.
#include "core/cpu/kernels/matmul/gemm_engines.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstdint>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/move/copy_transpose.h"
#include "core/cpu/kernels/vector/avx512_vector.h"

namespace shmap::cpu {
namespace {

constexpr std::int64_t kRows = 14;

// Measured with a first-level cache of 48 KiB and a second-level cache of 2 MiB.
constexpr std::int64_t kBlockBytes = 1 << 20;  // most bytes of a block of b
constexpr std::int64_t kAheadB = 1024;         // bytes of b to prefetch ahead

// True if the next elements of a, b and c are prefetched during other work, and b is packed a few
// panels at a time. That makes products of operands that are not in the second-level cache 3 to
// 10 % faster on Zen 5, up to 6 % on Zen 4, and 1 to 2 % slower on Intel's CPUs.
bool fetches_ahead() {
  static const bool does = __builtin_cpu_is("amd");
  return does;
}

template <class T>
using Vector = Avx512Vector<T>;

// The block sizes of products of T.
template <class T>
struct Cut {
  static constexpr std::int64_t size = sizeof(T), lanes = kAvx512Bytes / size, panel = 2 * lanes;
  // Longer sums are cut into blocks of k, so that a tile of a fits into the first-level cache
  // beside a panel.
  static constexpr std::int64_t max_k = 256;
  static constexpr std::int64_t max_k_across = size == 8 ? 144 : 256;
  static constexpr std::int64_t ld_a = max_k + lanes;
  static constexpr std::int64_t ld_across = (kRows + lanes - 1) / lanes * lanes;
  static constexpr std::int64_t block_b = kBlockBytes / size;  // elements
};

// Computes c = or, with `add`, c += the product of a tile of a and a panel of b. In the tile,
// elements along k are contiguous and rows are Cut::ld_a apart. With `across`, which is how a
// transposed matrix is read, rows are contiguous and elements along k are ld_across apart.
template <class T, int rows, bool across>
SHMAP_AVX512 void multiply(std::int64_t k, const T* a, const T* b, T* c, std::int64_t ldc,
                           bool add) {
  using V = Vector<T>;
  constexpr std::int64_t lanes = Cut<T>::lanes;
  constexpr std::int64_t next_k = across ? Cut<T>::ld_across : 1;
  constexpr std::int64_t next_row = across ? 1 : Cut<T>::ld_a;
  typename V::Type left[rows], right[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) left[r] = right[r] = V::zero();
  for (std::int64_t l = 0; l < k; ++l, a += next_k, b += Cut<T>::panel) {
    const auto b0 = V::load(b), b1 = V::load(b + lanes);
    const auto* const ahead = reinterpret_cast<const char*>(b) + kAheadB;
    _mm_prefetch(ahead, _MM_HINT_T0);
    _mm_prefetch(ahead + 64, _MM_HINT_T0);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const auto x = V::broadcast(a + r * next_row);
      left[r] = V::fma(x, b0, left[r]);
      right[r] = V::fma(x, b1, right[r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r, c += ldc) {
    if (add) {
      left[r] = V::add(V::loadu(c), left[r]);
      right[r] = V::add(V::loadu(c + lanes), right[r]);
    }
    V::storeu(c, left[r]);
    V::storeu(c + lanes, right[r]);
  }
}

template <class T>
using Multiply = void (*)(std::int64_t, const T*, const T*, T*, std::int64_t, bool);
template <class T, bool across>
constexpr Multiply<T> kMultiply[kRows + 1] = {nullptr,
                                              multiply<T, 1, across>,
                                              multiply<T, 2, across>,
                                              multiply<T, 3, across>,
                                              multiply<T, 4, across>,
                                              multiply<T, 5, across>,
                                              multiply<T, 6, across>,
                                              multiply<T, 7, across>,
                                              multiply<T, 8, across>,
                                              multiply<T, 9, across>,
                                              multiply<T, 10, across>,
                                              multiply<T, 11, across>,
                                              multiply<T, 12, across>,
                                              multiply<T, 13, across>,
                                              multiply<T, 14, across>};

// Stores the first columns of a tile of sums in c.
template <class T>
SHMAP_AVX512 void put(const T* tile, std::int64_t rows, std::int64_t cols, T* c, std::int64_t ldc,
                      bool add) {
  using V = Vector<T>;
  for (std::int64_t r = 0; r < rows; ++r, tile += Cut<T>::panel, c += ldc) {
    for (std::int64_t j = 0; j < cols; j += Cut<T>::lanes) {
      const auto mask = Vector<T>::first_lanes(cols - j);
      auto v = V::load(tile + j);
      if (add) v = V::add(V::loadu(mask, c + j), v);
      V::storeu(c + j, mask, v);
    }
  }
}

template <class T>
const T* at(const void* base, std::int64_t offset) {
  return static_cast<const T*>(base) + offset;
}

// dst[r][c] = src[c][r] for r < rows, c < cols.
template <class T>
void transposed(T* dst, std::int64_t dst_ld, const T* src, std::int64_t src_ld, std::int64_t rows,
                std::int64_t cols) {
  transpose(reinterpret_cast<char*>(dst), dst_ld * Cut<T>::size, reinterpret_cast<const char*>(src),
            src_ld * Cut<T>::size, rows, cols, sizeof(T));
}

// The transpose of 16 × 16 floats, through pairs and fours of rows, then fours of their parts.
SHMAP_AVX512 void transpose_16(const float* src, std::int64_t ld, float* dst, std::int64_t dst_ld) {
  __m512 r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(src + i * ld);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 2]);
    const __m512d c = _mm512_castps_pd(t[i + 1]), d = _mm512_castps_pd(t[i + 3]);
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
  }
  constexpr int even = 0x88, odd = 0xdd;  // for parts of 4 floats of both operands
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 e0 = _mm512_shuffle_f32x4(r[i], r[i + 4], even);
    const __m512 e1 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], even);
    const __m512 o0 = _mm512_shuffle_f32x4(r[i], r[i + 4], odd);
    const __m512 o1 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], odd);
    _mm512_store_ps(dst + i * dst_ld, _mm512_shuffle_f32x4(e0, e1, even));
    _mm512_store_ps(dst + (i + 4) * dst_ld, _mm512_shuffle_f32x4(o0, o1, even));
    _mm512_store_ps(dst + (i + 8) * dst_ld, _mm512_shuffle_f32x4(e0, e1, odd));
    _mm512_store_ps(dst + (i + 12) * dst_ld, _mm512_shuffle_f32x4(o0, o1, odd));
  }
}

// Packs kb elements of each of `cols` columns of a transposed b into a panel.
template <class T>
SHMAP_AVX512 void pack_across(const T* from, std::int64_t ldb, std::int64_t kb, std::int64_t cols,
                              T* to) {
  constexpr std::int64_t lanes = Cut<T>::lanes, panel = Cut<T>::panel;
  std::int64_t l = 0;
  if constexpr (sizeof(T) == 4) {
    const bool fetches = fetches_ahead();
    for (; cols == panel && l + lanes <= kb; l += lanes) {
      if (fetches)
        for (std::int64_t j = 0; j < panel; ++j)
          _mm_prefetch(reinterpret_cast<const char*>(from + j * ldb + l + 2 * lanes), _MM_HINT_T0);
      transpose_16(from + l, ldb, to + l * panel, panel);
      transpose_16(from + lanes * ldb + l, ldb, to + l * panel + lanes, panel);
    }
  }
  if (l == kb) return;
  if (cols < panel) std::fill(to + l * panel, to + kb * panel, T{0});
  transposed(to + l * panel, panel, from + l, ldb, kb - l, cols);
}

// Packs kb rows of b from k0 on and nb columns from n0 on into panels, padded with zeros.
template <class T>
SHMAP_AVX512 void pack_b(const Gemm& g, std::int64_t k0, std::int64_t kb, std::int64_t n0,
                         std::int64_t nb, T* panels) {
  using V = Vector<T>;
  constexpr std::int64_t lanes = Cut<T>::lanes, panel = Cut<T>::panel;
  if (g.trans_b) {
    for (std::int64_t j = 0; j < nb; j += panel) {
      pack_across(at<T>(g.b, (n0 + j) * g.ldb + k0), g.ldb, kb, std::min(panel, nb - j),
                  panels + j * kb);
    }
    return;
  }
  const bool fetches = fetches_ahead();
  const std::int64_t group = fetches ? 4 * panel : nb, rows_ahead = fetches ? 8 * g.ldb : 0;
  for (std::int64_t j0 = 0; j0 < nb; j0 += group) {
    const std::int64_t j1 = std::min(nb, j0 + group);
    for (std::int64_t l = 0; l < kb; ++l) {
      const T* const from = at<T>(g.b, (k0 + l) * g.ldb + n0);
      std::int64_t j = j0;
      for (; j + panel <= j1; j += panel) {
        T* const to = panels + j * kb + l * panel;
        if (fetches) {
          const auto* const ahead = reinterpret_cast<const char*>(from + rows_ahead + j);
          _mm_prefetch(ahead, _MM_HINT_T0);
          _mm_prefetch(ahead + kAvx512Bytes, _MM_HINT_T0);
        }
        V::store(to, V::loadu(from + j));
        V::store(to + lanes, V::loadu(from + j + lanes));
      }
      if (j < j1) {
        T* const to = panels + j * kb + l * panel;
        V::store(to, V::loadu(V::first_lanes(nb - j), from + j));
        V::store(to + lanes, V::loadu(V::first_lanes(nb - j - lanes), from + j + lanes));
      }
    }
  }
}

// Copies rows of kb elements of a into a tile.
template <class T>
SHMAP_AVX512 void copy_a(const Gemm& g, std::int64_t m0, std::int64_t rows, std::int64_t k0,
                         std::int64_t kb, T* tile) {
  using V = Vector<T>;
  constexpr std::int64_t lanes = Cut<T>::lanes, ld = Cut<T>::ld_a;
  if (g.trans_a) {
    for (std::int64_t l = 0; l < kb; ++l) {
      const T* const from = at<T>(g.a, (k0 + l) * g.lda + m0);
      for (std::int64_t r = 0; r < rows; r += lanes)
        V::store(tile + l * Cut<T>::ld_across + r,
                 V::loadu(Vector<T>::first_lanes(rows - r), from + r));
    }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const from = at<T>(g.a, (m0 + r) * g.lda + k0);
    T* const to = tile + r * ld;
    std::int64_t l = 0;
    for (; l + lanes <= kb; l += lanes) V::store(to + l, V::loadu(from + l));
    if (l < kb) V::store(to + l, V::loadu(V::first_lanes(kb - l), from + l));
  }
}

// Prefetches the rows of a that the next tile reads, a few bytes with each panel of this tile. Not
// used for a transposed a, whose products were slower with it.
template <class T>
struct FetchedRows {
  const T* row;
  std::int64_t ld, rows, bytes, share, byte = 0;

  FetchedRows(const Gemm& g, std::int64_t m0, std::int64_t count, std::int64_t k0, std::int64_t kb,
              std::int64_t nb)
      : row(at<T>(g.a, m0 * g.lda + k0)),
        ld(g.lda),
        rows(fetches_ahead() && !g.trans_a ? count : 0),
        bytes(kb * Cut<T>::size),
        share(ceil_div(rows * ceil_div(bytes, kAvx512Bytes), ceil_div(nb, Cut<T>::panel))) {}
  void fetch() {
    for (std::int64_t i = 0; i < share && rows > 0; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(row) + byte, _MM_HINT_T0);
      byte += kAvx512Bytes;
      if (byte < bytes) continue;
      byte = 0;
      row += ld;
      --rows;
    }
  }
};

// Prefetches the rows of c that are read or written once the sums of a tile are complete.
template <class T>
void fetch_tile(T* c, std::int64_t rows, std::int64_t ldc) {
  for (std::int64_t r = 0; r < rows; ++r) {
    __builtin_prefetch(c + r * ldc, 1);
    __builtin_prefetch(c + r * ldc + Cut<T>::lanes, 1);
  }
}

struct Panels;  // distinguishes this scratch memory from others

template <class T>
SHMAP_AVX512 void run_of(const Gemm& g) {
  using C = Cut<T>;
  const std::int64_t k_block = even_block(g.k, g.trans_a ? C::max_k_across : C::max_k, C::lanes);
  const std::int64_t n_block = even_block(g.n, C::block_b / k_block, C::panel);
  constexpr std::int64_t tile_size = std::max(kRows * C::ld_a, C::max_k_across * C::ld_across);
  constexpr std::int64_t sums_size = kRows * C::panel;
  // Up to kAheadB bytes past the end of this memory are prefetched, but never read.
  T* const tile = static_cast<T*>(kept_by_thread<GemmScratch, Panels>().get(
      static_cast<std::size_t>(C::size * (tile_size + sums_size + n_block * k_block))));
  T* const sums = tile + tile_size;
  T* const panels = sums + sums_size;
  const std::int64_t tiles = (g.m + kRows - 1) / kRows;
  // Rows of a that are as far apart as those of a tile are read where they are.
  const bool in_place = !g.trans_a && g.lda == C::ld_a;
  const bool fetches = fetches_ahead();
  for (std::int64_t n0 = 0; n0 < g.n; n0 += n_block) {
    const std::int64_t nb = std::min(n_block, g.n - n0);
    for (std::int64_t k0 = 0; k0 < g.k; k0 += k_block) {
      const std::int64_t kb = std::min(k_block, g.k - k0);
      const bool add = g.accumulate || k0 > 0;
      pack_b(g, k0, kb, n0, nb, panels);
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t m0 = g.m * t / tiles, rows = g.m * (t + 1) / tiles - m0;
        const T* left = tile;
        if (in_place)
          left = at<T>(g.a, m0 * g.lda + k0);
        else
          copy_a(g, m0, rows, k0, kb, tile);
        const Multiply<T> multiply_rows =
            g.trans_a ? kMultiply<T, true>[rows] : kMultiply<T, false>[rows];
        T* const row = static_cast<T*>(g.c) + m0 * g.ldc + n0;
        FetchedRows<T> next(g, m0 + rows, t + 1 < tiles ? rows : 0, k0, kb, nb);
        for (std::int64_t j = 0; j < nb; j += C::panel) {
          next.fetch();
          if (j + C::panel <= nb) {
            if (fetches) fetch_tile<T>(row + j, rows, g.ldc);
            multiply_rows(kb, left, panels + j * kb, row + j, g.ldc, add);
          } else {
            multiply_rows(kb, left, panels + j * kb, sums, C::panel, false);
            put(sums, rows, nb - j, row + j, g.ldc, add);
          }
        }
      }
    }
  }
}

void run(const Gemm& g) {
  if (is_narrow(g)) return narrow_gemm(g);
  return g.dtype == f64 ? run_of<double>(g) : run_of<float>(g);
}

bool usable() {
  return (__builtin_cpu_is("intel") || __builtin_cpu_is("amd")) &&
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool supports(DType dtype, DType out) {
  static const bool here = usable();
  return here && dtype == out && (dtype == f32 || dtype == f64);
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
