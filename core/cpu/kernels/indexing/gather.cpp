#include "core/cpu/kernels/indexing/gather.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/contains.h"
#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/indexing/gather_index.h"
#include "core/cpu/kernels/indexing/word_places.h"
#include "core/cpu/kernels/move/copy.h"

namespace shmap::cpu {
namespace {

using std::int64_t;

constexpr int64_t kPartBytes = 64 << 10;  // fewer bytes are not worth another thread

// The layout of one slice in the operand and in the output.
struct Window {
  int rank = 0;              // number of the slice's dims that are in the output
  int64_t extent[kMaxRank];  // extents of these dims
  int64_t operand_stride[kMaxRank], out_stride[kMaxRank];  // bytes
  int64_t run = 0;  // bytes if the slice is one contiguous run in both arrays; else 0
  int64_t bytes = 0;
};

// The dims of the batch: all dims of `indices` except the last.
struct Batch {
  int rank = 0;
  int64_t count = 1;
  int64_t extent[kMaxRank], out_stride[kMaxRank];
};

struct Plan {
  Window window;
  Batch batch;
  int64_t operand_stride[kMaxRank];  // bytes, for every operand dim
  int64_t last_start[kMaxRank];      // for each operand dim, the largest start whose slice fits
  int64_t from_end[kMaxRank];        // for each operand dim, the number added to a negative index
  int64_t index_size = 0;            // entries of an index vector
};

Plan make_plan(const Gather& g) {
  Plan p;
  const int rank = g.operand_shape.rank();
  const Shape out = gather_shape(g);
  int64_t out_stride[kMaxRank];
  row_major_strides(out.rank(), out.data(), g.itemsize, out_stride);
  row_major_strides(rank, g.operand_shape.data(), g.itemsize, p.operand_stride);
  p.index_size = g.indices_shape.back();
  for (int d = 0; d < rank; ++d) {
    const auto i = static_cast<std::size_t>(d);
    p.last_start[d] = g.operand_shape[i] - g.slice_sizes[i];
    p.from_end[d] = g.from_end ? g.operand_shape[i] : 0;
  }
  Window& w = p.window;
  w.bytes = g.itemsize;
  for (int d = 0; d < rank; ++d) {
    if (contains(g.dims.collapsed_slice_dims, d) || contains(g.dims.operand_batching_dims, d))
      continue;
    w.extent[w.rank] = g.slice_sizes[static_cast<std::size_t>(d)];
    w.operand_stride[w.rank] = p.operand_stride[d];
    w.out_stride[w.rank] = out_stride[g.dims.offset_dims[static_cast<std::size_t>(w.rank)]];
    w.bytes *= w.extent[w.rank];
    ++w.rank;
  }
  int64_t expected = g.itemsize;
  bool contiguous = true;
  for (int i = w.rank - 1; i >= 0; --i) {
    if (w.extent[i] == 1) continue;
    contiguous &= w.operand_stride[i] == expected && w.out_stride[i] == expected;
    expected *= w.extent[i];
  }
  w.run = contiguous ? w.bytes : 0;
  int at = 0;
  for (int d = 0; d < out.rank(); ++d) {
    if (contains(g.dims.offset_dims, d)) continue;
    p.batch.extent[at] = g.indices_shape[static_cast<std::size_t>(at)];
    p.batch.count *= p.batch.extent[at];
    p.batch.out_stride[at] = out_stride[d];
    ++at;
  }
  p.batch.rank = at;
  return p;
}

void copy_window(const Window& w, int itemsize, char* dst, const char* src, bool fill) {
  if (w.run > 0 && !fill) {
    std::memcpy(dst, src, static_cast<std::size_t>(w.run));
    return;
  }
  StridedCopy c;
  c.rank = w.rank;
  c.itemsize = itemsize;
  for (int d = 0; d < w.rank; ++d) {
    c.extent[d] = w.extent[d];
    c.dst_stride[d] = w.out_stride[d];
    c.src_stride[d] = fill ? 0 : w.operand_stride[d];
  }
  c.src = src;
  c.dst = dst;
  copy_strided(c);
}

// A gather as [outer, slices, run] from [outer, line]: each slice is a run of bytes that begins
// anywhere in its line. This needs index vectors of one entry, and slices that are whole in the
// dims before the indexed dim and contiguous from that dim on.
struct Lines {
  int64_t outer = 1, in_stride = 0, out_stride = 0, run = 0;  // bytes
};

bool as_lines(const Gather& g, const Plan& p, Lines* lines) {
  if (p.index_size != 1 || g.dims.operand_batching_dims.size() > 0) return false;
  if (g.index_dtype != i32 && g.index_dtype != i64) return false;
  const int64_t dim = g.dims.start_index_map[0];
  const Window& w = p.window;
  int inner = w.rank;  // the first window dim that is `dim` or comes after it
  while (inner > 0 && w.operand_stride[inner - 1] <= p.operand_stride[dim]) --inner;
  const auto grow = [](int64_t* expected, int64_t extent, int64_t stride) {
    if (extent == 1) return true;
    if (stride != *expected) return false;
    *expected *= extent;
    return true;
  };
  int64_t in = g.itemsize, out = g.itemsize;
  for (int i = w.rank - 1; i >= inner; --i)
    if (!grow(&in, w.extent[i], w.operand_stride[i]) || !grow(&out, w.extent[i], w.out_stride[i]))
      return false;
  lines->run = out;
  for (int d = p.batch.rank - 1; d >= 0; --d)
    if (!grow(&out, p.batch.extent[d], p.batch.out_stride[d])) return false;
  lines->in_stride = in = p.operand_stride[dim] * g.operand_shape[static_cast<std::size_t>(dim)];
  lines->out_stride = out;
  for (int i = inner - 1; i >= 0; --i) {
    if (!grow(&in, w.extent[i], w.operand_stride[i]) || !grow(&out, w.extent[i], w.out_stride[i]))
      return false;
    lines->outer *= w.extent[i];
  }
  return true;
}

// Computes, for slices [begin, begin + count), the byte offset in a line, or -1 if a slice is
// filled.
template <class T>
void read_offsets(const Gather& g, const Plan& p, int64_t begin, int64_t count, int64_t* offsets) {
  const auto dim = g.dims.start_index_map[0];
  const int64_t last = p.last_start[dim], stride = p.operand_stride[dim];
  const int64_t from_end = p.from_end[dim];
  for (int64_t k = 0; k < count; ++k) {
    int64_t i = read_index<T>(g.indices, begin + k);
    i += i < 0 ? from_end : 0;
    if (g.mode == IndexMode::clip) i = std::clamp<int64_t>(i, 0, last);
    const bool inside = g.mode != IndexMode::fill_or_drop || (i >= 0 && i <= last);
    offsets[k] = inside ? i * stride : -1;
  }
}

// kBytes: the size of a run if it is a known constant; kLines for runs of a few cache lines, for
// which memcpy calls would take longer; else 0.
constexpr int64_t kLines = -64;
template <int64_t kBytes>
void take(const Gather& g, char* out, const char* in, int64_t run, const int64_t* offsets,
          int64_t count) {
  // Rows are anywhere in the operand, so the next ones are prefetched while others are copied.
  constexpr int64_t kAhead = 8;
  const int64_t bytes = kBytes > 0 ? kBytes : run;
  for (int64_t b = 0; b < count; ++b) {
    if constexpr (kBytes <= 0 || kBytes >= 16) {
      const int64_t next = offsets[std::min(b + kAhead, count - 1)];
      for (int64_t at = 0; next >= 0 && at < std::min<int64_t>(bytes, 512); at += 64)
        __builtin_prefetch(in + next + at);
    }
    if (offsets[b] < 0)
      fill(out + b * bytes, g.fill, g.itemsize, bytes / g.itemsize);
    else if constexpr (kBytes == kLines)
      for (int64_t at = 0; at < run; at += 64)
        std::memcpy(out + b * run + at, in + offsets[b] + at, 64);
    else
      std::memcpy(out + b * bytes, in + offsets[b], static_cast<std::size_t>(bytes));
  }
}

using Take = void (*)(const Gather& g, char* out, const char* in, int64_t run,
                      const int64_t* offsets, int64_t count);

Take take_of(int64_t run) {
  switch (run) {
    case 1:
      return take<1>;
    case 2:
      return take<2>;
    case 4:
      return take<4>;
    case 8:
      return take<8>;
    case 16:
      return take<16>;
    case 32:
      return take<32>;
    case 64:
      return take<64>;
    default:
      return run % 64 == 0 && run <= 256 ? take<kLines> : take<0>;
  }
}

// True if the slices' positions along the dim of an entry of the index vectors are whole units of
// so many bytes, and these positions, and the extent from which negative indices count, fit in 32
// bits.
bool begin_at_units(const Gather& g, const Plan& p, std::size_t entry, int64_t unit) {
  const int64_t dim = g.dims.start_index_map[entry];
  const int64_t last = p.last_start[dim], stride = p.operand_stride[dim];
  return stride % unit == 0 && last >= 0 && last <= INT32_MAX / std::max<int64_t>(1, stride) &&
         p.from_end[dim] <= INT32_MAX;
}
bool begin_at_words(const Gather& g, const Plan& p) { return begin_at_units(g, p, 0, 4); }
bool are_words(const Gather& g, const Plan& p, const Lines& lines) {
  return g.itemsize == 4 && lines.run == 4 && begin_at_words(g, p);
}

// Computes, for slices [begin, begin + count), count <= kPlaces, the position along the dim of an
// entry of the index vectors, in units of so many bytes, or -1 if the slice is filled. `add`: adds
// it to what `at` has, where -1 stays.
constexpr int64_t kPlaces = 512;
void place_units(const Gather& g, const Plan& p, std::size_t entry, int64_t unit, int64_t begin,
                 int64_t count, std::int32_t* at, bool add) {
  static const WordPlacesFn place = word_places_kernel();
  std::int32_t narrow[kPlaces];
  const int64_t dim = g.dims.start_index_map[entry];
  const int64_t first = begin * p.index_size + static_cast<int64_t>(entry);
  const std::int32_t* indices = narrow;
  int64_t stride = p.index_size;
  if (g.index_dtype == i32) {
    indices = static_cast<const std::int32_t*>(g.indices) + first;
  } else {  // an index beyond 32 bits is out of bounds, as its nearest 32-bit number is
    const auto* const from = static_cast<const int64_t*>(g.indices) + first;
    for (int64_t k = 0; k < count; ++k)
      narrow[k] =
          static_cast<std::int32_t>(std::clamp<int64_t>(from[k * stride], INT32_MIN, INT32_MAX));
    stride = 1;
  }
  place(indices, stride, count, g.mode, static_cast<std::int32_t>(p.from_end[dim]),
        static_cast<std::int32_t>(p.last_start[dim]),
        static_cast<std::int32_t>(p.operand_stride[dim] / unit), at, add);
}
void place_words(const Gather& g, const Plan& p, int64_t begin, int64_t count, std::int32_t* at) {
  place_units(g, p, 0, 4, begin, count, at, false);
}

// Uses scalar loads: vector gathers took a third longer (measured on Ice Lake, with a table larger
// than the second-level cache). A function of its own, since the loop takes 1.3 times as long where
// it happens to begin at the end of a cache line of code.
[[gnu::noinline, gnu::aligned(64)]] void take_words(const std::uint32_t* table,
                                                    const std::int32_t* at, int64_t count,
                                                    std::uint32_t fill, std::uint32_t* out) {
  for (int64_t k = 0; k < count; ++k) out[k] = at[k] < 0 ? fill : table[at[k]];
}

// Gathers slices [begin, end) of lines [first, last). If the slices cover most of a line, the next
// line is prefetched in ascending order, a stretch after each few slices. Prefetched at once, it
// would delay the loads of these slices.
void take_lines(const Gather& g, const Plan& p, const Lines& lines, int64_t first, int64_t last,
                int64_t begin, int64_t end) {
  constexpr int64_t kBlock = kPlaces, kLine = 64, kFew = 64;
  constexpr int64_t kMostAhead = 128 << 10;  // bytes, of the second-level cache
  const bool of_words = are_words(g, p, lines);
  int64_t offsets[kBlock];
  std::int32_t at_word[kBlock];
  std::uint32_t filled = 0;
  if (of_words && g.mode == IndexMode::fill_or_drop) std::memcpy(&filled, g.fill, sizeof filled);
  const Take take_block = take_of(lines.run);
  const bool whole = lines.in_stride <= kMostAhead && (end - begin) * kLine >= lines.in_stride / 2;
  for (int64_t b = begin; b < end; b += kBlock) {
    const int64_t count = std::min(kBlock, end - b);
    if (of_words)
      place_words(g, p, b, count, at_word);
    else if (g.index_dtype == i32)
      read_offsets<std::int32_t>(g, p, b, count, offsets);
    else
      read_offsets<int64_t>(g, p, b, count, offsets);
    for (int64_t o = first; o < last; ++o) {
      const char* const in = static_cast<const char*>(g.operand) + o * lines.in_stride;
      char* const out = static_cast<char*>(g.out) + o * lines.out_stride + b * lines.run;
      const int64_t ahead = whole && o + 1 < last ? lines.in_stride : 0;
      const int64_t few = ahead > 0 ? kFew : count;
      const int64_t stretch = (ahead * few / count / kLine + 1) * kLine;
      for (int64_t k = 0, fetched = 0; k < count; k += few) {
        const int64_t now = std::min(few, count - k);
        for (const int64_t to = std::min(fetched + stretch, ahead); fetched < to; fetched += kLine)
          __builtin_prefetch(in + lines.in_stride + fetched, 0, 2);
        if (of_words)
          take_words(reinterpret_cast<const std::uint32_t*>(in), at_word + k, now, filled,
                     reinterpret_cast<std::uint32_t*>(out) + k);
        else
          take_block(g, out + k * lines.run, in, lines.run, offsets + k, now);
      }
    }
  }
}

// True if slices are contiguous runs that are adjacent in the output along the last dim of the
// batch. Index vectors may have any length.
bool as_runs(const Gather& g, const Plan& p) {
  return p.window.run > 0 && p.batch.rank > 0 && (g.index_dtype == i32 || g.index_dtype == i64) &&
         p.batch.out_stride[p.batch.rank - 1] == p.window.run;
}

// Adds to each of `count` offsets where in the operand the slices from `begin` on begin, or makes
// it -1 if the slice is filled.
template <class T>
void add_starts(const Gather& g, const Plan& p, int64_t begin, int64_t count, int64_t* offsets) {
  for (int64_t k = 0; k < count; ++k) {
    bool inside = true;
    for (int64_t e = 0; e < p.index_size; ++e) {
      const int64_t dim = g.dims.start_index_map[static_cast<std::size_t>(e)];
      int64_t start = read_index<T>(g.indices, (begin + k) * p.index_size + e);
      start += start < 0 ? p.from_end[dim] : 0;
      if (g.mode == IndexMode::clip) start = std::clamp<int64_t>(start, 0, p.last_start[dim]);
      inside &= g.mode != IndexMode::fill_or_drop || (start >= 0 && start <= p.last_start[dim]);
      offsets[k] += inside ? start * p.operand_stride[dim] : 0;
    }
    if (!inside) offsets[k] = -1;
  }
}

// Does the same an entry of the index vectors at a time; only if the positions of all entries
// together fit in 32 bits.
void add_units(const Gather& g, const Plan& p, int64_t begin, int64_t count, int64_t* offsets) {
  std::int32_t at[kPlaces];
  for (std::size_t e = 0; e < static_cast<std::size_t>(p.index_size); ++e)
    place_units(g, p, e, g.itemsize, begin, count, at, e > 0);
  for (int64_t k = 0; k < count; ++k)
    offsets[k] = at[k] < 0 ? -1 : offsets[k] + int64_t{at[k]} * g.itemsize;
}
bool can_add_units(const Gather& g, const Plan& p) {
  int64_t most = 0;  // bytes
  for (std::size_t e = 0; e < static_cast<std::size_t>(p.index_size); ++e) {
    if (!begin_at_units(g, p, e, g.itemsize)) return false;
    const int64_t dim = g.dims.start_index_map[e];
    most += p.last_start[dim] * p.operand_stride[dim];
  }
  return p.index_size > 0 && most <= INT32_MAX;
}

// Gathers slices [begin, end), a stretch of the batch's last dim at a time. For each stretch,
// computes the offsets first and then copies.
void take_runs(const Gather& g, const Plan& p, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = kPlaces;
  int64_t offsets[kBlock];
  const Take take_block = take_of(p.window.run);
  const auto add = can_add_units(g, p)    ? add_units
                   : g.index_dtype == i32 ? add_starts<std::int32_t>
                                          : add_starts<int64_t>;
  const int last = p.batch.rank - 1;
  int64_t step[kMaxRank] = {};  // bytes in the operand per step along each dim of the batch
  for (std::size_t i = 0; i < g.dims.operand_batching_dims.size(); ++i)
    step[g.dims.indices_batching_dims[i]] += p.operand_stride[g.dims.operand_batching_dims[i]];
  for (int64_t b = begin; b < end;) {
    int64_t src = 0, dst = 0, in_last = 0;
    for (int64_t rest = b, d = last; d >= 0; --d) {
      const int64_t index = rest % p.batch.extent[d];
      rest /= p.batch.extent[d];
      src += index * step[d];
      dst += index * p.batch.out_stride[d];
      if (d == last) in_last = index;
    }
    const int64_t count = std::min({kBlock, end - b, p.batch.extent[last] - in_last});
    for (int64_t k = 0; k < count; ++k) offsets[k] = src + k * step[last];
    add(g, p, b, count, offsets);
    take_block(g, static_cast<char*>(g.out) + dst, static_cast<const char*>(g.operand),
               p.window.run, offsets, count);
    b += count;
  }
}

void run(const Gather& g, const Plan& p, int64_t begin, int64_t end) {
  if (begin >= end || p.window.bytes == 0) return;
  if (as_runs(g, p)) return take_runs(g, p, begin, end);
  const ReadIndex read = index_reader(g.index_dtype);
  for (int64_t b = begin; b < end; ++b) {
    int64_t index[kMaxRank];
    char* dst = static_cast<char*>(g.out);
    for (int64_t rest = b, d = p.batch.rank - 1; d >= 0; --d) {
      index[d] = rest % p.batch.extent[d];
      rest /= p.batch.extent[d];
      dst += index[d] * p.batch.out_stride[d];
    }
    const char* src = static_cast<const char*>(g.operand);
    bool inside = true;
    for (int64_t k = 0; k < p.index_size; ++k) {
      const int64_t dim = g.dims.start_index_map[static_cast<std::size_t>(k)];
      int64_t start = read(g.indices, b * p.index_size + k);
      start += start < 0 ? p.from_end[dim] : 0;
      if (g.mode == IndexMode::clip)
        start = std::clamp<int64_t>(start, 0, p.last_start[dim]);
      else if (start < 0 || start > p.last_start[dim])
        inside = false;
      if (inside) src += start * p.operand_stride[dim];
    }
    for (std::size_t i = 0; i < g.dims.operand_batching_dims.size(); ++i) {
      src += index[g.dims.indices_batching_dims[i]] *
             p.operand_stride[g.dims.operand_batching_dims[i]];
    }
    copy_window(p.window, g.itemsize, dst, inside ? src : static_cast<const char*>(g.fill),
                !inside);
  }
}

}  // namespace

Shape gather_shape(const Gather& g) {
  Shape out;
  const std::size_t batch_rank = g.indices_shape.size() - 1;
  const std::size_t rank = batch_rank + g.dims.offset_dims.size();
  std::size_t batch = 0, slice = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    if (!contains(g.dims.offset_dims, static_cast<int64_t>(d))) {
      out.push_back(g.indices_shape[batch++]);
      continue;
    }
    while (contains(g.dims.collapsed_slice_dims, static_cast<int64_t>(slice)) ||
           contains(g.dims.operand_batching_dims, static_cast<int64_t>(slice)))
      ++slice;
    out.push_back(g.slice_sizes[slice++]);
  }
  return out;
}

void gather(const Gather& g) { gather_part(g, 0, 1); }

int gather_parts(const Gather& g, int workers) {
  const Plan p = make_plan(g);
  const int64_t most = std::min<int64_t>(workers, p.batch.count);
  return static_cast<int>(std::clamp<int64_t>(p.batch.count * (p.window.bytes + 16) / kPartBytes, 1,
                                              std::max<int64_t>(1, most)));
}

void gather_part(const Gather& g, int part, int parts) {
  const Plan p = make_plan(g);
  if (Lines lines; p.window.bytes > 0 && as_lines(g, p, &lines)) {
    // If there are enough lines, each part gets whole lines, so that no two parts read the same
    // line.
    const bool of_lines = lines.outer >= 4 * parts;
    const int64_t n = of_lines ? lines.outer : p.batch.count;
    const int64_t begin = n * part / parts, end = n * (part + 1) / parts;
    if (begin >= end) return;
    return of_lines ? take_lines(g, p, lines, begin, end, 0, p.batch.count)
                    : take_lines(g, p, lines, 0, lines.outer, begin, end);
  }
  run(g, p, p.batch.count * part / parts, p.batch.count * (part + 1) / parts);
}

void gather_slices(const Gather& g, int64_t begin, int64_t end, void* out) {
  Plan p = make_plan(g);
  if (begin >= end || p.window.bytes == 0) return;
  Gather there = g;
  // The address of slice 0 such that slice `begin` comes to lie at `out`.
  there.out = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(out) -
                                      static_cast<std::uintptr_t>(begin * p.window.bytes));
  if (Lines lines; as_lines(there, p, &lines) && lines.outer == 1)
    return take_lines(there, p, lines, 0, 1, begin, end);
  run(there, p, begin, end);
}

bool find_slices(const Gather& g, std::int64_t begin, std::int64_t end, const void* filled,
                 const void** at) {
  const Plan p = make_plan(g);
  Lines lines;
  if (p.window.bytes == 0 || !as_lines(g, p, &lines) || lines.outer != 1) return false;
  constexpr int64_t kBlock = kPlaces;
  int64_t offsets[kBlock];
  std::int32_t words[kBlock];
  const bool at_words = begin_at_words(g, p);
  const auto* const in = static_cast<const char*>(g.operand);
  for (int64_t b = begin; b < end; b += kBlock, at += kBlock) {
    const int64_t count = std::min(kBlock, end - b);
    if (at_words) {
      place_words(g, p, b, count, words);
      for (int64_t k = 0; k < count; ++k)
        at[k] = words[k] < 0 ? filled : in + int64_t{4} * words[k];
      continue;
    }
    if (g.index_dtype == i32)
      read_offsets<std::int32_t>(g, p, b, count, offsets);
    else
      read_offsets<int64_t>(g, p, b, count, offsets);
    for (int64_t k = 0; k < count; ++k) at[k] = offsets[k] < 0 ? filled : in + offsets[k];
  }
  return true;
}

}  // namespace shmap::cpu
