#include "core/cpu/kernels/gather.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/cpu/kernels/copy.h"
#include "core/cpu/kernels/fill.h"
#include "core/cpu/kernels/gather_index.h"

namespace shmap::cpu {
namespace {

using std::int64_t;

constexpr int64_t kPartBytes = 64 << 10;  // less is not worth another thread

bool contains(const IntList& list, int64_t v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

// One slice: which part of the operand it is, and how it lies in the output.
struct Window {
  int rank = 0;              // dims of the slice that are in the output
  int64_t extent[kMaxRank];  // of these
  int64_t operand_stride[kMaxRank], out_stride[kMaxRank];  // bytes
  int64_t run = 0;  // bytes, where the slice is one contiguous run on both sides; else 0
  int64_t bytes = 0;
};

// One dim of the batch: the dims of `indices` but the last.
struct Batch {
  int rank = 0;
  int64_t count = 1;
  int64_t extent[kMaxRank], out_stride[kMaxRank];
};

struct Plan {
  Window window;
  Batch batch;
  int64_t operand_stride[kMaxRank];  // bytes, of every operand dim
  int64_t last_start[kMaxRank];      // by operand dim: the largest start whose slice fits
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

template <int64_t kBytes>
void take(char* out, const char* operand, int64_t begin, int64_t end, const auto& source) {
  for (int64_t b = begin; b < end; ++b) std::memcpy(out + b * kBytes, operand + source(b), kBytes);
}

// Index vectors of one entry, and slices that follow each other in the output: rows of the operand
// taken one after the other. `source` gives the byte offset of slice b, or -1 for a fill.
template <class Source>
void take_rows(const Gather& g, const Window& w, int64_t begin, int64_t end, const Source& source,
               bool may_fill) {
  char* const out = static_cast<char*>(g.out);
  const char* const operand = static_cast<const char*>(g.operand);
  if (!may_fill) {
    switch (w.run) {
      case 1:
        return take<1>(out, operand, begin, end, source);
      case 2:
        return take<2>(out, operand, begin, end, source);
      case 4:
        return take<4>(out, operand, begin, end, source);
      case 8:
        return take<8>(out, operand, begin, end, source);
      default:
        break;
    }
  }
  for (int64_t b = begin; b < end; ++b) {
    const int64_t from = source(b);
    if (from < 0)
      fill(out + b * w.run, g.fill, g.itemsize, w.run / g.itemsize);
    else
      std::memcpy(out + b * w.run, operand + from, static_cast<std::size_t>(w.run));
  }
}

template <class T>
void take_rows_of(const Gather& g, const Plan& p, int64_t begin, int64_t end) {
  const auto dim = g.dims.start_index_map[0];
  const int64_t last = p.last_start[dim], stride = p.operand_stride[dim];
  const void* const indices = g.indices;
  switch (g.mode) {
    case IndexMode::promise_in_bounds:
      return take_rows(
          g, p.window, begin, end, [=](int64_t b) { return read_index<T>(indices, b) * stride; },
          false);
    case IndexMode::clip:
      return take_rows(
          g, p.window, begin, end,
          [=](int64_t b) {
            return std::clamp<int64_t>(read_index<T>(indices, b), 0, last) * stride;
          },
          false);
    case IndexMode::fill_or_drop:
      return take_rows(
          g, p.window, begin, end,
          [=](int64_t b) {
            const int64_t i = read_index<T>(indices, b);
            return i < 0 || i > last ? -1 : i * stride;
          },
          true);
  }
}

bool is_take(const Gather& g, const Plan& p) {
  if (p.index_size != 1 || p.window.run <= 0 || g.dims.operand_batching_dims.size() > 0)
    return false;
  int64_t expected = p.window.run;
  for (int d = p.batch.rank - 1; d >= 0; --d) {
    if (p.batch.extent[d] == 1) continue;
    if (p.batch.out_stride[d] != expected) return false;
    expected *= p.batch.extent[d];
  }
  return g.index_dtype == i32 || g.index_dtype == i64;
}

void run(const Gather& g, const Plan& p, int64_t begin, int64_t end) {
  if (begin >= end || p.window.bytes == 0) return;
  const ReadIndex read = index_reader(g.index_dtype);
  if (is_take(g, p)) {
    return g.index_dtype == i32 ? take_rows_of<std::int32_t>(g, p, begin, end)
                                : take_rows_of<int64_t>(g, p, begin, end);
  }
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
      if (g.mode == IndexMode::clip)
        start = std::clamp<int64_t>(start, 0, p.last_start[dim]);
      else if (g.mode == IndexMode::fill_or_drop && (start < 0 || start > p.last_start[dim]))
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
  run(g, p, p.batch.count * part / parts, p.batch.count * (part + 1) / parts);
}

}  // namespace shmap::cpu
