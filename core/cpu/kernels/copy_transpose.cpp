#include "core/cpu/kernels/copy_transpose.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "core/base/thread_kept.h"

namespace shmap::cpu {
namespace {

constexpr int kLine = 64;
constexpr int kVector = 16;

// Interleaves the halves of a and b: vectors of one item type, of 16 bytes.
template <class Item>
struct Interleave;

template <>
struct Interleave<std::uint8_t> {
  typedef std::uint8_t Vec __attribute__((vector_size(kVector)));
  static void both(const Vec& a, const Vec& b, Vec& low, Vec& high) {
    low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high =
        __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
};
template <>
struct Interleave<std::uint16_t> {
  typedef std::uint16_t Vec __attribute__((vector_size(kVector)));
  static void both(const Vec& a, const Vec& b, Vec& low, Vec& high) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
template <>
struct Interleave<std::uint32_t> {
  typedef std::uint32_t Vec __attribute__((vector_size(kVector)));
  static void both(const Vec& a, const Vec& b, Vec& low, Vec& high) {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
};
template <>
struct Interleave<std::uint64_t> {
  typedef std::uint64_t Vec __attribute__((vector_size(kVector)));
  static void both(const Vec& a, const Vec& b, Vec& low, Vec& high) {
    low = __builtin_shufflevector(a, b, 0, 2);
    high = __builtin_shufflevector(a, b, 1, 3);
  }
};

// Stores `to`; where kStream, past the caches, and `to` must be aligned.
template <bool kStream, class Vec>
void store(char* to, const Vec& v) {
#if defined(__x86_64__)
  if constexpr (kStream) {
    __m128i bits;
    std::memcpy(&bits, &v, sizeof bits);
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), bits);
    return;
  }
#endif
  std::memcpy(to, &v, sizeof v);
}

template <bool kStream>
void copy_vector(char* to, const char* from) {
  typename Interleave<std::uint64_t>::Vec v;
  std::memcpy(&v, from, sizeof v);
  store<kStream>(to, v);
}

// Transposes a tile of items, one cache line in each direction, from `in` to rows dst_row apart. To
// interleave row i with row i + n / 2, log2(n) times, transposes n × n items in registers.
template <class Item, bool kStream>
void transpose_tile(const char* in, char* dst, std::int64_t dst_row) {
  using Pair = Interleave<Item>;
  using Vec = typename Pair::Vec;
  constexpr int n = kVector / static_cast<int>(sizeof(Item));
  constexpr int blocks = kLine / kVector;
  for (int i = 0; i < blocks; ++i) {
    for (int j = 0; j < blocks; ++j) {
      Vec v[2][n];
      for (int r = 0; r < n; ++r)
        std::memcpy(&v[0][r], in + (j * n + r) * kLine + i * kVector, kVector);
      int now = 0;
#pragma GCC unroll 4
      for (int step = 1; step < n; step *= 2) {
#pragma GCC unroll 16
        for (int r = 0; r < n / 2; ++r)
          Pair::both(v[now][r], v[now][r + n / 2], v[1 - now][2 * r], v[1 - now][2 * r + 1]);
        now = 1 - now;
      }
      for (int r = 0; r < n; ++r)
        store<kStream>(dst + (i * n + r) * dst_row + j * kVector, v[now][r]);
    }
  }
}

// The buffer that tiles pass through.
template <class Item, int kWide>
struct Tiles {
  static constexpr std::int64_t kEdge = kLine / static_cast<std::int64_t>(sizeof(Item));
  alignas(kLine) char in[kWide][kEdge * kLine] = {};
  alignas(kLine) char out[kEdge * kLine];
};

// Tiles go through a buffer, because lines that are a power of two apart would evict each other; at
// the edges the buffer also cuts a tile to size. Each step takes kWide tiles of the same rows of
// src, so that src is read in longer runs, and prefetches the lines of the next step.
template <class Item, bool kStream, int kWide>
void transpose_items(Tiles<Item, kWide>& tiles, char* dst, std::int64_t dst_row, const char* src,
                     std::int64_t src_row, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t size = sizeof(Item);
  constexpr std::int64_t edge = kLine / size;
  constexpr std::int64_t band = 512;  // columns of dst at a time: as many pages of src stay in the
                                      // TLB
  auto& in = tiles.in;
  auto& out = tiles.out;
  for (std::int64_t band0 = 0; band0 < cols; band0 += band) {
    const std::int64_t band1 = std::min(band0 + band, cols);
    for (std::int64_t r = 0; r < rows; r += edge * kWide) {
      const std::int64_t step_rows = std::min(edge * kWide, rows - r);
      for (std::int64_t c = band0; c < band1; c += edge) {
        const std::int64_t tile_cols = std::min(edge, band1 - c);
        const char* const from = src + c * src_row + r * size;
        char* const to = dst + r * dst_row + c * size;
        if (step_rows == edge * kWide && tile_cols == edge) {
          const std::int64_t ahead = c + 2 * edge <= band1 ? edge * src_row : 0;
          for (std::int64_t i = 0; i < edge; ++i) {
            const char* const line = from + i * src_row;
            for (int w = 0; w < kWide; ++w) {
              std::memcpy(in[w] + i * kLine, line + w * kLine, kLine);
              __builtin_prefetch(line + ahead + w * kLine);
            }
          }
          for (int w = 0; w < kWide; ++w) {
            char* const tile = to + w * edge * dst_row;
            if constexpr (kStream && size < 4) {
              // To store past the caches here would keep more lines open than the CPU has
              // write-combining buffers.
              transpose_tile<Item, false>(in[w], out, kLine);
              for (std::int64_t i = 0; i < edge; ++i)
                for (int v = 0; v < kLine; v += kVector)
                  copy_vector<kStream>(tile + i * dst_row + v, out + i * kLine + v);
            } else {
              transpose_tile<Item, kStream>(in[w], tile, dst_row);
            }
          }
          continue;
        }
        for (std::int64_t r0 = 0; r0 < step_rows; r0 += edge) {
          const std::int64_t tile_rows = std::min(edge, step_rows - r0);
          for (std::int64_t i = 0; i < tile_cols; ++i) {
            std::memcpy(in[0] + i * kLine, from + i * src_row + r0 * size,
                        static_cast<std::size_t>(tile_rows * size));
          }
          transpose_tile<Item, false>(in[0], out, kLine);
          for (std::int64_t i = 0; i < tile_rows; ++i) {
            std::memcpy(to + (r0 + i) * dst_row, out + i * kLine,
                        static_cast<std::size_t>(tile_cols * size));
          }
        }
      }
    }
  }
#if defined(__x86_64__)
  if constexpr (kStream) _mm_sfence();
#endif
}

// Measured on 4096 × 4096 floats: 3 times as fast past the caches; on 1024 × 1024 no faster.
constexpr std::int64_t kStreamBytes = std::int64_t{16} << 20;

template <class Item>
void transpose_items(char* dst, std::int64_t dst_row, const char* src, std::int64_t src_row,
                     std::int64_t rows, std::int64_t cols) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(dst) % kLine == 0 && dst_row % kLine == 0;
  if (aligned && rows * cols * static_cast<std::int64_t>(sizeof(Item)) >= kStreamBytes) {
    auto& tiles = kept_by_thread<Tiles<Item, 4>>();  // 20 KiB is much for the stack of a thread
    transpose_items<Item, true, 4>(tiles, dst, dst_row, src, src_row, rows, cols);
  } else {
    Tiles<Item, 1> tiles;
    transpose_items<Item, false, 1>(tiles, dst, dst_row, src, src_row, rows, cols);
  }
}

}  // namespace

void transpose(char* dst, std::int64_t dst_row, const char* src, std::int64_t src_row,
               std::int64_t rows, std::int64_t cols, int itemsize) {
  switch (itemsize) {
    case 1:
      return transpose_items<std::uint8_t>(dst, dst_row, src, src_row, rows, cols);
    case 2:
      return transpose_items<std::uint16_t>(dst, dst_row, src, src_row, rows, cols);
    case 4:
      return transpose_items<std::uint32_t>(dst, dst_row, src, src_row, rows, cols);
    default:
      return transpose_items<std::uint64_t>(dst, dst_row, src, src_row, rows, cols);
  }
}

}  // namespace shmap::cpu
