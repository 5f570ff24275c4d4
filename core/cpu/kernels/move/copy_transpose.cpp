#include "core/cpu/kernels/move/copy_transpose.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/thread_kept.h"
#include "core/base/word_type.h"
#include "core/cpu/kernels/vector/non_temporal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/move/copy_transpose.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

using std::int64_t;

constexpr int64_t kPiece = 16;  // bytes of the pieces within which vectors interleave

// Blocks of dst pass through these buffers: rows that are a power of two apart would evict each
// other from a cache, and at its edges a matrix does not fill its last vectors.
struct Room {
  static constexpr int64_t kRow = 1024;         // bytes of a row of dst at a time
  static constexpr int64_t kPitch = kRow + 64;  // so that rows lie in different sets
  alignas(64) char in[8 << 10] = {};
  alignas(64) char out[128 * kPitch] = {};
};

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;

template <class Item>
struct Lanes {
  using D = hn::ScalableTag<Item>;
  using Vec = hn::Vec<D>;
  static constexpr int64_t kBytes = static_cast<int64_t>(hn::MaxLanes(D{}) * sizeof(Item));

  // Loads the pieces at `from`, from + step, … into one vector.
  template <class Tag>
  static HWY_INLINE hn::Vec<Tag> gathered(Tag d, const char* from, int64_t step) {
    if constexpr (hn::MaxLanes(Tag{}) * sizeof(Item) == kPiece) {
      return hn::LoadU(d, reinterpret_cast<const Item*>(from));
    } else {
      const hn::Half<Tag> half;
      constexpr auto count = static_cast<int64_t>(hn::MaxLanes(half) * sizeof(Item)) / kPiece;
      return hn::Combine(d, gathered(half, from + count * step, step), gathered(half, from, step));
    }
  }
  static HWY_INLINE Vec load(const char* from, int64_t step) { return gathered(D{}, from, step); }
  static HWY_INLINE Vec low(Vec a, Vec b) { return hn::InterleaveLower(D{}, a, b); }
  static HWY_INLINE Vec high(Vec a, Vec b) { return hn::InterleaveUpper(D{}, a, b); }
  static HWY_INLINE void store(Vec v, char* to) { hn::StoreU(v, D{}, reinterpret_cast<Item*>(to)); }
};
#else
template <class Item>
struct Lanes {
  typedef Item Vec __attribute__((vector_size(kPiece)));
  static constexpr int64_t kBytes = kPiece;

  static Vec load(const char* from, int64_t) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  static Vec low(Vec a, Vec b) {
    if constexpr (sizeof(Item) == 1)
      return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    else if constexpr (sizeof(Item) == 2)
      return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    else if constexpr (sizeof(Item) == 4)
      return __builtin_shufflevector(a, b, 0, 4, 1, 5);
    else
      return __builtin_shufflevector(a, b, 0, 2);
  }
  static Vec high(Vec a, Vec b) {
    if constexpr (sizeof(Item) == 1)
      return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                     31);
    else if constexpr (sizeof(Item) == 2)
      return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    else if constexpr (sizeof(Item) == 4)
      return __builtin_shufflevector(a, b, 2, 6, 3, 7);
    else
      return __builtin_shufflevector(a, b, 1, 3);
  }
  static void store(Vec v, char* to) { std::memcpy(to, &v, sizeof v); }
};
#endif

// Copies `bytes` bytes, at most 2 step - 1.
template <int64_t step>
inline void copy_short(char* to, const char* from, int64_t bytes) {
  if (bytes >= step) {
    std::memcpy(to, from, step);
    if (bytes > step) std::memcpy(to + bytes - step, from + bytes - step, step);
  } else if constexpr (step > 1) {
    copy_short<step / 2>(to, from, bytes);
  }
}

// memcpy, inline: for a few cache lines the call would take as long as the copy.
inline void copy_run(char* to, const char* from, int64_t bytes) {
  constexpr int64_t step = 64;
  int64_t at = 0;
  for (; at + 2 * step <= bytes; at += step) std::memcpy(to + at, from + at, step);
  copy_short<step>(to + at, from + at, bytes - at);
}

// Fetches the lines of a run into the L1 cache (level 3) or the L2 cache (2).
template <int level>
inline void prefetch_run(const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, level);
  __builtin_prefetch(from + bytes - 1, 0, level);
}

// Transposes a strip: one piece of each of a vector's number of rows of `in` becomes one vector of
// each of a piece's number of rows of `out`. Interleaving row i with row i + n / 2, log2(n) times,
// transposes n × n items in registers. A vector also has the pieces of the rows n, 2 n, … further
// on.
template <class Item, int64_t in_row>
inline void transpose_strip(const char* in, char* out) {
  using L = Lanes<Item>;
  constexpr int n = kPiece / static_cast<int>(sizeof(Item));
  typename L::Vec v[2][n];
#pragma GCC unroll 16
  for (int k = 0; k < n; ++k) v[0][k] = L::load(in + k * in_row, n * in_row);
  int now = 0;
#pragma GCC unroll 4
  for (int step = 1; step < n; step *= 2) {
#pragma GCC unroll 16
    for (int r = 0; r < n / 2; ++r) {
      v[1 - now][2 * r] = L::low(v[now][r], v[now][r + n / 2]);
      v[1 - now][2 * r + 1] = L::high(v[now][r], v[now][r + n / 2]);
    }
    now = 1 - now;
  }
#pragma GCC unroll 16
  for (int r = 0; r < n; ++r) L::store(v[now][r], out + r * Room::kPitch);
}

// Handles a block of dst at a time: kRun bytes of as many rows of src as a buffer row has items. A
// few rows' runs are transposed while the next ones are prefetched, and the block's rows are stored
// past the caches while the next block is prefetched: so memory is read and written at the same
// time.
template <class Item>
void transpose_items(char* dst, int64_t dst_row, const char* src, int64_t src_row, int64_t rows,
                     int64_t cols, bool around) {
  constexpr auto size = static_cast<int64_t>(sizeof(Item));
  constexpr int64_t kRun = size == 1 ? 128 : 256;
  constexpr int64_t n = kPiece / size, edge = Lanes<Item>::kBytes / size;
  constexpr int64_t block_rows = kRun / size, block_cols = Room::kRow / size;
  static_assert(edge * kRun <= static_cast<int64_t>(sizeof(Room::in)));
  static_assert(block_rows * Room::kPitch <= static_cast<int64_t>(sizeof(Room::out)));
  Room& room = kept_by_thread<Room>();
  for (int64_t c0 = 0; c0 < cols; c0 += block_cols) {
    const int64_t now_cols = std::min(block_cols, cols - c0);
    for (int64_t r0 = 0; r0 < rows; r0 += block_rows) {
      const int64_t now_rows = std::min(block_rows, rows - r0), run = now_rows * size;
      const char* const from = src + c0 * src_row + r0 * size;
      for (int64_t c = 0; c < now_cols; c += edge) {
        const int64_t lines = std::min(edge, now_cols - c);
        const int64_t after = std::min(edge, now_cols - c - lines);
        for (int64_t i = 0; i < lines; ++i)
          copy_run(room.in + i * kRun, from + (c + i) * src_row, run);
        for (int64_t i = 0; i < after; ++i) prefetch_run<3>(from + (c + edge + i) * src_row, run);
        for (int64_t r = 0; r < now_rows; r += n)
          transpose_strip<Item, kRun>(room.in + r * size, room.out + r * Room::kPitch + c * size);
      }
      const bool more = r0 + block_rows < rows;
      const int64_t next_cols = more ? now_cols : std::min(block_cols, cols - c0 - now_cols);
      const char* const next = more ? from + kRun : src + (c0 + block_cols) * src_row;
      const int64_t next_run = std::min(kRun, (more ? rows - r0 - block_rows : rows) * size);
      // The number of runs to prefetch for each row that is stored. Without `around` the runs come
      // from the last-level cache, which is fast enough.
      const int64_t a_row = around ? (next_cols + now_rows - 1) / now_rows : 0;
      char* const to = dst + r0 * dst_row + c0 * size;
      for (int64_t r = 0, fetched = 0; r < now_rows; ++r) {
        for (const int64_t end = std::min(next_cols, fetched + a_row); fetched < end; ++fetched)
          prefetch_run<2>(next + fetched * src_row, next_run);
        if (around)
          store_non_temporal(to + r * dst_row, room.out + r * Room::kPitch, now_cols * size);
        else
          copy_run(to + r * dst_row, room.out + r * Room::kPitch, now_cols * size);
      }
    }
  }
  if (around) non_temporal_fence();
}

using Transpose = void (*)(char*, int64_t, const char*, int64_t, int64_t, int64_t, bool);
Transpose find_transpose(int itemsize) {
  return with_word(itemsize, []<class T>() -> Transpose { return transpose_items<T>; });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_transpose);

void transpose(char* dst, std::int64_t dst_row, const char* src, std::int64_t src_row,
               std::int64_t rows, std::int64_t cols, int itemsize) {
  SHMAP_BEST(find_transpose)(itemsize)(dst, dst_row, src, src_row, rows, cols, false);
}

void transpose_around(char* dst, std::int64_t dst_row, const char* src, std::int64_t src_row,
                      std::int64_t rows, std::int64_t cols, int itemsize) {
  SHMAP_BEST(find_transpose)(itemsize)(dst, dst_row, src, src_row, rows, cols, true);
}

}  // namespace shmap::cpu
#endif
