// Products of bf16 in AMX tiles. A tile holds 16 × 16 sums in f32; a step adds 32 elements of k.
// Four tiles of sums (2 × 2) are held at once: with fewer, the AMX unit waits for loads.
//
// Operands are packed in panels of 32 rows of a, or 32 columns of b, padded with zeros. A step of a
// panel is two tiles of 16 rows of 64 bytes, as the unit loads them (row p of a tile of b holds the
// elements 2p and 2p + 1 of k of each column). A block of b stays in the second-level cache while
// all rows are multiplied with it. Some steps of one panel of a at a time stay in the first-level
// cache meanwhile: the second-level cache alone feeds the unit at only two thirds of its rate.
#include "core/cpu/kernels/matmul/gemm_engines.h"

#if defined(__x86_64__) && defined(__linux__)

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12's headers start from such values
#endif
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/move/copy_transpose.h"

namespace shmap::cpu {
namespace {

#define SHMAP_AMX \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))

constexpr std::int64_t kTile = 16, kPanel = 32;  // rows of a, columns of b
constexpr std::int64_t kTileBytes = 1024;        // size of every tile
constexpr std::int64_t kStep = 32;               // elements of k in a tile
constexpr std::int64_t kStepBytes = 2 * kTileBytes;
constexpr std::int64_t kSums = kPanel * kPanel;  // sums for one panel of a and one panel of b

// Measured with a first-level cache of 48 KiB and a second-level cache of 2 MiB.
constexpr std::int64_t kHotSteps = 16;                // steps of a panel of a that stay in the
                                                      // first-level cache
constexpr std::int64_t kMaxK = 3072, kSplitK = 2048;  // longer sums are cut into blocks of k
constexpr std::int64_t kBlockB = 1 << 19;             // most elements of a block of b
constexpr std::int64_t kMaxColumns = 2048;            // most columns of a block of b
constexpr std::int64_t kSplitRows = 4096;             // rows whose partial sums are kept where k is
                                                      // cut
constexpr std::int64_t kMaxTransposed = 1 << 22;      // elements of a that are transposed at a time

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Configures the calling thread's tiles, each 16 rows of 64 bytes, for the lifetime of the object.
class Tiles {
 public:
  SHMAP_AMX Tiles() {
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = 64;
      config.rows[t] = 16;
    }
    // The compiler does not know that the intrinsic reads the whole of `config`.
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  SHMAP_AMX ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// The memory to prefetch while tiles are multiplied: the rows of a for the next panel, the next
// sums, and the result rows of these sums. Addresses (0: none), and the bytes from row to row.
struct Ahead {
  std::uintptr_t a = 0, a_row = 0;
  std::int64_t a_from = 0;  // first part to prefetch, counted in quarters of rows
  std::uintptr_t sums = 0;
  std::uintptr_t out = 0, out_row = 0;
};

// GCC removes calls of functions that only prefetch; inline assembly is kept.
inline void fetch_line(std::uintptr_t p) { __asm__ volatile("prefetcht1 (%0)" : : "r"(p)); }
inline void fetch_to_write(std::uintptr_t p) { __asm__ volatile("prefetchw (%0)" : : "r"(p)); }

// Prefetches the memory that step s has to prefetch. There are at most kHotSteps steps.
inline void fetch(const Ahead& ahead, std::int64_t s) {
  const auto step = static_cast<std::uintptr_t>(s);
  constexpr std::int64_t parts = kHotSteps / 4;  // parts of a row, each of four cache lines
  if (const std::int64_t part = ahead.a_from + s; part < parts * kPanel) {
    const std::uintptr_t p = ahead.a + static_cast<std::uintptr_t>(part / parts) * ahead.a_row +
                             static_cast<std::uintptr_t>(part % parts) * 256;
    for (std::uintptr_t line = 0; line < 256; line += 64) fetch_line(p + line);
  }
  if (ahead.sums != 0) {
    for (std::uintptr_t line = 0; line < 256; line += 64)
      fetch_to_write(ahead.sums + 256 * step + line);
  }
  if (ahead.out != 0 && s < kPanel / 4) {
    for (std::uintptr_t r = 0; r < 4; ++r)
      fetch_to_write(ahead.out + (4 * step + r) * ahead.out_row);
  }
}

// Load the four tiles of sums from memory (or clear them if `first`), and store them. If one_a or
// one_b is set, that panel has only one tile.
template <bool one_a, bool one_b>
SHMAP_AMX inline void load_sums(const float* sums, bool first) {
  constexpr int tile = kTile * kTile;
  __asm__ volatile("" : : : "memory");
  if (first) {
    _tile_zero(0);
    if constexpr (!one_b) _tile_zero(1);
    if constexpr (!one_a) _tile_zero(2);
    if constexpr (!one_a && !one_b) _tile_zero(3);
  } else {
    _tile_stream_loadd(0, sums, 64);
    if constexpr (!one_b) _tile_stream_loadd(1, sums + tile, 64);
    if constexpr (!one_a) _tile_stream_loadd(2, sums + 2 * tile, 64);
    if constexpr (!one_a && !one_b) _tile_stream_loadd(3, sums + 3 * tile, 64);
  }
}
template <bool one_a, bool one_b>
SHMAP_AMX inline void store_sums(float* sums) {
  constexpr int tile = kTile * kTile;
  _tile_stored(0, sums, 64);
  if constexpr (!one_b) _tile_stored(1, sums + tile, 64);
  if constexpr (!one_a) _tile_stored(2, sums + 2 * tile, 64);
  if constexpr (!one_a && !one_b) _tile_stored(3, sums + 3 * tile, 64);
  __asm__ volatile("" : : : "memory");
}

// Sets the four tiles of sums to the product of `steps` tiles of a panel of a and a panel of b, or
// adds the product unless `first`. Loads of a go to the first-level cache; loads of b bypass it.
template <bool one_a, bool one_b>
SHMAP_AMX void multiply(const char* a, const char* b, std::int64_t steps, bool first,
                        const Ahead& ahead, float* sums) {
  load_sums<one_a, one_b>(sums, first);
  for (std::int64_t s = 0; s < steps; ++s, a += kStepBytes, b += kStepBytes) {
    _tile_loadd(4, a, 64);
    _tile_stream_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (!one_a) {
      _tile_loadd(5, a + kTileBytes, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (!one_b) {
      _tile_stream_loadd(7, b + kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (!one_a) _tile_dpbf16ps(3, 5, 7);
    }
    fetch(ahead, s);
  }
  store_sums<one_a, one_b>(sums);
}

// Does the same as multiply for whole panels and an unpacked a, whose 32 rows are ld elements
// apart. Packs a while the unit multiplies, which hides the time for packing.
SHMAP_AMX void multiply_and_pack(const std::uint16_t* a, std::int64_t ld, const char* b,
                                 std::int64_t steps, bool first, const Ahead& ahead, float* sums,
                                 char* panel) {
  load_sums<false, false>(sums, first);
  for (std::int64_t s = 0; s < steps; ++s, a += kStep, b += kStepBytes, panel += kStepBytes) {
    _tile_stream_loadd(4, a, ld * 2);
    _tile_stream_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(5, a + kTile * ld, ld * 2);
    _tile_stored(4, panel, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_stream_loadd(7, b + kTileBytes, 64);
    _tile_stored(5, panel + kTileBytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    fetch(ahead, s);
  }
  store_sums<false, false>(sums);
}

using Multiply = void (*)(const char*, const char*, std::int64_t, bool, const Ahead&, float*);
constexpr Multiply kMultiply[2][2] = {{multiply<false, false>, multiply<false, true>},
                                      {multiply<true, false>, multiply<true, true>}};

// The destination of the sums, and the values that are added to them. Rows of f32 sums are sum_ld
// elements apart, rows of bf16 ld elements.
struct Destination {
  const float* add = nullptr;          // null: none
  float* sum = nullptr;                // null: the sums go to `out`
  const std::uint16_t* old = nullptr;  // null: none
  std::uint16_t* out = nullptr;
  std::int64_t sum_ld = 0, ld = 0;
};

SHMAP_AMX inline __m512i high_halves(__m256i v) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16);
}

__mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, kTile)) - 1);
}

// The common case: writes all sums of four tiles, rounded to bf16.
SHMAP_AMX void put_rounded(const float* sums, std::uint16_t* out, std::int64_t ld) {
  constexpr int tile = kTile * kTile;
  for (std::int64_t r = 0; r < kPanel; ++r, out += ld) {
    const float* const left = sums + r / kTile * 2 * tile + r % kTile * kTile;
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_load_ps(left + tile), _mm512_load_ps(left));
    _mm512_storeu_si512(out, reinterpret_cast<__m512i>(both));
  }
}

SHMAP_AMX void put(const float* sums, std::int64_t rows, std::int64_t cols, const Destination& t) {
  if (t.add == nullptr && t.old == nullptr && t.sum == nullptr && rows == kPanel && cols == kPanel)
    return put_rounded(sums, t.out, t.ld);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; c += kTile) {
      const __mmask16 mask = first_lanes(cols - c);
      const std::int64_t tile = r / kTile * 2 + c / kTile;
      __m512 v = _mm512_load_ps(sums + tile * kTile * kTile + r % kTile * kTile);
      if (t.add != nullptr)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, t.add + r * t.sum_ld + c));
      if (t.old != nullptr) {
        const __m256i old = _mm256_maskz_loadu_epi16(mask, t.old + r * t.ld + c);
        v = _mm512_add_ps(v, _mm512_castsi512_ps(high_halves(old)));
      }
      if (t.sum != nullptr) {
        _mm512_mask_storeu_ps(t.sum + r * t.sum_ld + c, mask, v);
      } else {
        _mm256_mask_storeu_epi16(t.out + r * t.ld + c, mask,
                                 reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
      }
    }
  }
}

// Packs up to 32 rows of k elements, ld apart, into a panel. Whole tiles are moved by the AMX unit:
// its loads that bypass the first-level cache leave that cache to the panel.
SHMAP_AMX void pack_rows(const std::uint16_t* src, std::int64_t ld, std::int64_t rows,
                         std::int64_t k, char* panel) {
  const std::int64_t steps = ceil_div(k, kStep), whole = rows == kPanel ? k / kStep : 0;
  for (std::int64_t s = 0; s < whole; ++s) {
    _tile_stream_loadd(4, src + s * kStep, ld * 2);
    _tile_stream_loadd(5, src + s * kStep + kTile * ld, ld * 2);
    _tile_stored(4, panel + s * kStepBytes, 64);
    _tile_stored(5, panel + s * kStepBytes + kTileBytes, 64);
  }
  const auto rest = static_cast<__mmask32>(~0u >> (steps * kStep - k));
  for (std::int64_t s = whole; s < steps; ++s) {
    for (std::int64_t r = 0; r < kPanel; ++r) {
      const __mmask32 mask = r >= rows ? 0 : s + 1 == steps ? rest : ~__mmask32{0};
      _mm512_store_si512(panel + s * kStepBytes + r * 64,  // the second tile follows the first
                         _mm512_maskz_loadu_epi16(mask, src + r * ld + s * kStep));
    }
  }
}

// Packs k rows of b, ld apart, into panels of 32 columns.
SHMAP_AMX void pack_pairs(const std::uint16_t* src, std::int64_t ld, std::int64_t k,
                          std::int64_t cols, char* panels) {
  const std::int64_t steps = ceil_div(k, kStep), panel_bytes = steps * kStepBytes;
  constexpr std::int64_t ahead = 16;  // rows to prefetch ahead
  for (std::int64_t p = 0; p < steps * kStep / 2; ++p) {
    const std::uint16_t* const row = src + 2 * p * ld;
    char* const to = panels + p / kTile * kStepBytes + p % kTile * 64;
    const bool first = 2 * p < k, second = 2 * p + 1 < k, fetch = 2 * p + ahead + 1 < k;
    for (std::int64_t c = 0; c < cols; c += kTile) {
      const __mmask16 mask = first_lanes(cols - c);
      if (fetch) {
        _mm_prefetch(row + ahead * ld + c, _MM_HINT_T0);
        _mm_prefetch(row + (ahead + 1) * ld + c, _MM_HINT_T0);
      }
      const __m256i even = _mm256_maskz_loadu_epi16(first ? mask : __mmask16{0}, row + c);
      const __m256i odd = _mm256_maskz_loadu_epi16(second ? mask : __mmask16{0}, row + ld + c);
      _mm512_store_si512(to + c / kPanel * panel_bytes + c % kPanel / kTile * kTileBytes,
                         _mm512_or_si512(_mm512_cvtepu16_epi32(even), high_halves(odd)));
    }
  }
}

// Does the same as pack_pairs for a b whose columns are contiguous and ld elements apart.
void pack_columns(const std::uint16_t* src, std::int64_t ld, std::int64_t k, std::int64_t cols,
                  char* panels) {
  const std::int64_t steps = ceil_div(k, kStep);
  for (std::int64_t c = 0; c < cols; c += kTile) {
    const std::int64_t here = std::min(kTile, cols - c);
    char* const to = panels + c / kPanel * steps * kStepBytes + c % kPanel / kTile * kTileBytes;
    for (std::int64_t s = 0; s < steps; ++s) {
      char* const tile = to + s * kStepBytes;
      const std::uint16_t* const from = src + c * ld + s * kStep;
      const std::int64_t kb = std::min(kStep, k - s * kStep);
      if (here < kTile || kb < kStep) std::memset(tile, 0, kTileBytes);
      transpose(tile, 64, reinterpret_cast<const char*>(from), ld * 2, kb / 2, here, 4);
      if (kb % 2 == 0) continue;
      for (std::int64_t i = 0; i < here; ++i)
        std::memcpy(tile + kb / 2 * 64 + i * 4, from + i * ld + kb - 1, 2);
    }
  }
}

const std::uint16_t* at(const void* base, std::int64_t offset) {
  return static_cast<const std::uint16_t*>(base) + offset;
}

std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

struct Buffers {
  GemmScratch packed, partial;
};

// A block of the product: mb × nb elements of C from (m0, n0) on, for kb elements of k from k0 on.
struct Block {
  std::int64_t m0, mb, n0, nb, k0, kb;
  bool first, last;  // true for the first (last) block of k
};

void multiply_block(const Gemm& g, const Block& block, char* hot, const char* packed_b, float* sums,
                    float* partial) {
  const std::int64_t steps = ceil_div(block.kb, kStep), out_size = itemsize(g.out);
  const bool whole = steps <= kHotSteps;  // all of k is summed at once
  for (std::int64_t i = 0; i < block.mb; i += kPanel) {
    const std::int64_t rows = std::min(kPanel, block.mb - i);
    const std::uint16_t* const a = at(g.a, (block.m0 + i) * g.lda + block.k0);
    for (std::int64_t s = 0; s < steps; s += kHotSteps) {
      const std::int64_t here = std::min(kHotSteps, steps - s);
      const std::int64_t kb = std::min(here * kStep, block.kb - s * kStep);
      const bool whole_panels = rows == kPanel && kb == here * kStep && block.nb > kTile;
      if (!whole_panels) pack_rows(a + s * kStep, g.lda, rows, kb, hot);
      const bool last = s + here == steps;
      Ahead ahead;
      ahead.a = address(last ? a + kPanel * g.lda : a + (s + kHotSteps) * kStep);
      ahead.a_row = static_cast<std::uintptr_t>(g.lda) * 2;
      for (std::int64_t j = 0; j < block.nb; j += kPanel, ahead.a_from += here) {
        const std::int64_t cols = std::min(kPanel, block.nb - j);
        float* const tiles = sums + (whole ? 0 : j / kPanel * kSums);
        const std::int64_t element = (block.m0 + i) * g.ldc + block.n0 + j;
        ahead.sums = !whole && j + kPanel < block.nb ? address(tiles + kSums) : 0;
        if (last && block.last) {
          ahead.out = address(static_cast<const char*>(g.c) + element * out_size);
          ahead.out_row = static_cast<std::uintptr_t>(g.ldc * out_size);
        }
        const char* const b = packed_b + (j / kPanel * steps + s) * kStepBytes;
        if (j == 0 && whole_panels)
          multiply_and_pack(a + s * kStep, g.lda, b, here, s == 0, ahead, tiles, hot);
        else
          kMultiply[rows <= kTile][cols <= kTile](hot, b, here, s == 0, ahead, tiles);
        if (!last) continue;
        Destination to;
        to.ld = g.ldc;
        if (g.out == f32) {
          to.sum_ld = g.ldc;
          to.sum = static_cast<float*>(g.c) + element;
          if (!block.first || g.accumulate) to.add = to.sum;
        } else {
          to.sum_ld = block.nb;
          float* const so_far = partial + i * block.nb + j;
          if (!block.first) to.add = so_far;
          to.out = static_cast<std::uint16_t*>(g.c) + element;
          if (!block.last)
            to.sum = so_far;
          else if (g.accumulate)
            to.old = to.out;
        }
        put(tiles, rows, cols, to);
      }
    }
  }
}

void run_rows(const Gemm& g, Buffers& buffers) {
  const std::int64_t k_block = g.k <= kMaxK ? g.k : even_block(g.k, kSplitK, kStep);
  const std::int64_t steps = ceil_div(k_block, kStep);
  const std::int64_t n_block =
      even_block(g.n, std::min(kBlockB / (steps * kStep), kMaxColumns), kPanel);
  const bool split = k_block < g.k;
  const std::int64_t m_block = split ? std::min(g.m, kSplitRows) : g.m;
  const auto get = [](GemmScratch& s, std::int64_t bytes) {
    return static_cast<char*>(s.get(static_cast<std::size_t>(bytes)));
  };
  // The two buffers are adjacent: within huge pages no two parts of them map to the same sets of
  // the second-level cache.
  const std::int64_t panels = n_block / kPanel, hot_bytes = kHotSteps * kStepBytes;
  const std::int64_t sums_bytes = panels * kSums * 4;
  char* const hot = get(buffers.packed, hot_bytes + sums_bytes + panels * steps * kStepBytes);
  auto* const sums = reinterpret_cast<float*>(hot + hot_bytes);
  char* const packed_b = hot + hot_bytes + sums_bytes;
  float* partial = nullptr;
  if (split && g.out == bf16)
    partial = reinterpret_cast<float*>(get(buffers.partial, m_block * n_block * 4));
  const Tiles tiles;
  for (std::int64_t m0 = 0; m0 < g.m; m0 += m_block) {
    for (std::int64_t n0 = 0; n0 < g.n; n0 += n_block) {
      for (std::int64_t k0 = 0; k0 < g.k; k0 += k_block) {
        const Block block{m0, std::min(m_block, g.m - m0), n0,      std::min(n_block, g.n - n0),
                          k0, std::min(k_block, g.k - k0), k0 == 0, k0 + k_block >= g.k};
        if (g.trans_b)
          pack_columns(at(g.b, n0 * g.ldb + k0), g.ldb, block.kb, block.nb, packed_b);
        else
          pack_pairs(at(g.b, k0 * g.ldb + n0), g.ldb, block.kb, block.nb, packed_b);
        multiply_block(g, block, hot, packed_b, sums, partial);
      }
    }
  }
}

void run(const Gemm& g) {
  Buffers& buffers = kept_by_thread<Buffers>();
  if (!g.trans_a) return run_rows(g, buffers);
  GemmScratch& transposed = kept_by_thread<GemmScratch, Buffers>();
  const std::int64_t rows = std::min(g.m, std::max(kPanel, kMaxTransposed / g.k));
  char* const plain = static_cast<char*>(transposed.get(static_cast<std::size_t>(rows * g.k * 2)));
  for (std::int64_t m = 0; m < g.m; m += rows) {
    Gemm part = gemm_block(g, m, std::min(g.m, m + rows), 0, g.n);
    transpose(plain, g.k * 2, static_cast<const char*>(part.a), g.lda * 2, part.m, g.k, 2);
    part.a = plain;
    part.lda = g.k;
    part.trans_a = false;
    run_rows(part, buffers);
  }
}

// True if the CPU has AMX and the operating system saves this process's tiles. The process must
// request that permission once.
bool usable() {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512bf16"))
    return false;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & amx_bf16) == 0 || (edx & amx_tile) == 0) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool supports(DType dtype, DType out) {
  static const bool here = usable();
  return here && dtype == bf16 && (out == bf16 || out == f32);
}

}  // namespace

const GemmLibrary* amx_gemm() {
  static constexpr GemmLibrary library = {supports, run};
  return &library;
}

}  // namespace shmap::cpu

#else

namespace shmap::cpu {
const GemmLibrary* amx_gemm() { return nullptr; }
}  // namespace shmap::cpu

#endif
