#include "core/cpu/kernels/move/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/move/copy_run.h"
#include "core/cpu/kernels/move/copy_short.h"
#include "core/cpu/kernels/move/copy_transpose.h"
#include "core/cpu/kernels/vector/non_temporal.h"
#include "core/cpu/kernels/vector/store_around.h"

namespace shmap::cpu {
namespace {

using std::int64_t;

// A copy of at least so many bytes in long runs stores past the caches: see bench/copy_bench.cpp.
constexpr int64_t kStreamBytes = int64_t{1} << 22;
constexpr int64_t kLongRun = 1024;  // bytes; a shorter run has too many partial lines

struct Dim {
  int64_t extent, dst, src;
};

// The copy as loops over as few dims as possible, the outermost first. The innermost run has `item`
// bytes, which may be more than one element.
struct Plan {
  int rank = 0;
  Dim dim[kMaxRank + 1];  // one more, since a dim may be cut in two
  int64_t item = 0;
  const char* src = nullptr;
  char* dst = nullptr;
  bool empty = false;
};

// True if outer dim a and inner dim b can be merged: a step of a spans all of b, in the source and
// the destination.
bool mergeable(const Dim& a, const Dim& b) {
  return a.dst == b.dst * b.extent && a.src == b.src * b.extent;
}

Plan make_plan(const StridedCopy& c) {
  Plan p;
  p.item = c.itemsize;
  p.src = static_cast<const char*>(c.src);
  p.dst = static_cast<char*>(c.dst);
  for (int d = 0; d < c.rank; ++d) {
    if (c.extent[d] == 0) p.empty = true;
    if (c.extent[d] == 1) continue;
    Dim dim{c.extent[d], c.dst_stride[d], c.src_stride[d]};
    if (dim.dst < 0) {  // the same copies, in ascending order of dst
      p.dst += dim.dst * (dim.extent - 1);
      p.src += dim.src * (dim.extent - 1);
      dim.dst = -dim.dst;
      dim.src = -dim.src;
    }
    p.dim[p.rank++] = dim;
  }
  if (p.empty) return p;
  // Orders the dims by dst stride, the largest outside. Insertion sort, stable.
  for (int i = 1; i < p.rank; ++i)
    for (int j = i; j > 0 && p.dim[j - 1].dst < p.dim[j].dst; --j)
      std::swap(p.dim[j - 1], p.dim[j]);
  int kept = 0;
  for (int i = 0; i < p.rank; ++i) {
    if (kept > 0 && mergeable(p.dim[kept - 1], p.dim[i])) {
      p.dim[kept - 1] = {p.dim[kept - 1].extent * p.dim[i].extent, p.dim[i].dst, p.dim[i].src};
    } else {
      p.dim[kept++] = p.dim[i];
    }
  }
  p.rank = kept;
  if (p.rank > 0 && p.dim[p.rank - 1].dst == p.item && p.dim[p.rank - 1].src == p.item) {
    p.item *= p.dim[p.rank - 1].extent;
    --p.rank;
  }
  return p;
}

// Short runs are copied inline, since a call of memcpy for each would take longer.
template <int64_t kBytes>
void copy_items(char* dst, const char* src, int64_t count, int64_t dst_step, int64_t src_step) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(dst + i * dst_step, src + i * src_step, kBytes);
}

// Copies the items along one dim.
void copy_line(char* dst, const char* src, const Dim& d, int64_t item) {
  if (d.src == 0 && d.dst == item && d.extent * item > 64 && item <= INT32_MAX)
    return fill(dst, src, static_cast<int>(item), d.extent);
  switch (item) {
    case 1:
      return copy_items<1>(dst, src, d.extent, d.dst, d.src);
    case 2:
      return copy_items<2>(dst, src, d.extent, d.dst, d.src);
    case 4:
      return copy_items<4>(dst, src, d.extent, d.dst, d.src);
    case 8:
      return copy_items<8>(dst, src, d.extent, d.dst, d.src);
    case 16:
      return copy_items<16>(dst, src, d.extent, d.dst, d.src);
    case 32:
      return copy_items<32>(dst, src, d.extent, d.dst, d.src);
    default:
      for (int64_t i = 0; i < d.extent; ++i) copy_run(dst + i * d.dst, src + i * d.src, item);
  }
}

// Walks the dims [0, outer) of the plan and calls f(dst, src) for each index.
template <class F>
void for_each(const Plan& p, int outer, const F& f) {
  int64_t index[kMaxRank + 1] = {};
  char* dst = p.dst;
  const char* src = p.src;
  for (;;) {
    f(dst, src);
    int d = outer - 1;
    for (; d >= 0; --d) {
      dst += p.dim[d].dst;
      src += p.dim[d].src;
      if (++index[d] < p.dim[d].extent) break;
      dst -= p.dim[d].dst * p.dim[d].extent;
      src -= p.dim[d].src * p.dim[d].extent;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

int64_t bytes_of(const Plan& p) {
  int64_t bytes = p.empty ? 0 : p.item;
  for (int d = 0; d < p.rank && !p.empty; ++d) bytes *= p.dim[d].extent;
  return bytes;
}

// Returns the dim, other than the innermost, along which src is contiguous: the two dims form a
// transpose of items. Returns -1 if there is none or a transpose would not be faster.
int transposed_dim(const Plan& p) {
  if (p.rank < 2 || (p.item != 1 && p.item != 2 && p.item != 4 && p.item != 8)) return -1;
  const Dim& inner = p.dim[p.rank - 1];
  if (inner.dst != p.item || inner.src == 0) return -1;
  for (int d = p.rank - 2; d >= 0; --d)
    if (p.dim[d].src == p.item && p.dim[d].extent >= 4 && inner.extent >= 4) return d;
  return -1;
}

// Exchanges a short innermost dim with a longer dim. The longer dim is cut into stretches that stay
// in the first-level cache while the short dim passes over them.
void lengthen_inner(Plan& p) {
  constexpr int64_t short_extent = 8, stretch = 512;
  if (p.rank < 2 || p.dim[p.rank - 1].extent >= short_extent) return;
  int longest = p.rank - 2;
  for (int d = longest - 1; d >= 0; --d)
    if (p.dim[d].extent > p.dim[longest].extent) longest = d;
  Dim dim = p.dim[longest];
  if (dim.extent <= p.dim[p.rank - 1].extent) return;
  for (int d = longest; d + 1 < p.rank; ++d) p.dim[d] = p.dim[d + 1];
  p.dim[p.rank - 1] = dim;
  if (dim.extent % stretch == 0 && dim.extent > stretch) {
    for (int d = p.rank; d > 0; --d) p.dim[d] = p.dim[d - 1];
    p.dim[0] = {dim.extent / stretch, dim.dst * stretch, dim.src * stretch};
    p.dim[p.rank++].extent = stretch;
  }
}

void drop_dim(Plan& p, int dim) {
  for (int d = dim; d + 1 < p.rank; ++d) p.dim[d] = p.dim[d + 1];
  --p.rank;
}

// Lines shorter than this are copied just as fast item by item.
constexpr int64_t kShortLine = 16;

// Copies single items that are contiguous in lines or in a few lines together in both arrays, or
// that are a few items apart. Returns false, and copies nothing, if the copy does not have this
// form.
bool run_short(Plan& p) {
  if (p.rank == 0) return false;
  const auto item = static_cast<int>(
      p.item == 1 || p.item == 2 || p.item == 4 || p.item == 8 ? p.item : int64_t{0});
  const Dim inner = p.dim[p.rank - 1];
  if (item == 0 || inner.dst != item) return false;
  if (inner.src == -item && inner.extent >= kShortLine) {
    const TurnFn turn = turn_kernel(item);
    --p.rank;
    const int64_t begin = -(inner.extent - 1) * item;
    for_each(p, p.rank, [&](char* dst, const char* src) { turn(src + begin, dst, inner.extent); });
    return true;
  }
  for (int d = p.rank - 2; d >= 0; --d) {  // dst has a few rows
    const Dim few = p.dim[d];
    if (few.src != item || inner.src != few.extent * item || inner.extent < kShortLine) continue;
    const DealFn deal = deal_kernel(item, few.extent);
    if (deal == nullptr) continue;
    --p.rank;
    drop_dim(p, d);
    for_each(p, p.rank, [&](char* dst, const char* src) {
      char* rows[kShortRows];
      for (int64_t j = 0; j < few.extent; ++j) rows[j] = dst + j * few.dst;
      deal(src, rows, inner.extent);
    });
    return true;
  }
  if (inner.extent >= kShortLine && inner.src % item == 0) {
    if (const PickFn pick = pick_kernel(item, inner.src / item); pick != nullptr) {
      --p.rank;
      for_each(p, p.rank, [&](char* dst, const char* src) { pick(src, dst, inner.extent); });
      return true;
    }
  }
  if (p.rank < 2) return false;
  const Dim line = p.dim[p.rank - 2];  // src has a few rows, or one row is repeated
  if (line.src != item || line.dst != inner.extent * item || line.extent < kShortLine) return false;
  const WeaveFn weave = weave_kernel(item, inner.extent);
  if (weave == nullptr) return false;
  p.rank -= 2;
  for_each(p, p.rank, [&](char* dst, const char* src) {
    const char* rows[kShortRows];
    for (int64_t j = 0; j < inner.extent; ++j) rows[j] = src + j * inner.src;
    weave(rows, dst, line.extent);
  });
  return true;
}

// around: the whole copy, of which p may be a part, is larger than the caches.
void run(Plan p, bool around) {
  if (p.empty) return;
  if (p.rank == 0) return copy_bytes(p.dst, p.src, p.item);
  if (run_short(p)) return;
  const int t = transposed_dim(p);
  if (t >= 0) {
    const Dim rows = p.dim[t], cols = p.dim[p.rank - 1];
    drop_dim(p, t);
    const auto turn = around && cols.extent * p.item >= kLongRun ? transpose_around : transpose;
    for_each(p, p.rank - 1, [&](char* dst, const char* src) {
      turn(dst, rows.dst, src, cols.src, rows.extent, cols.extent, static_cast<int>(p.item));
    });
    return;
  }
  if (p.item >= kLongRun && bytes_of(p) >= kStreamBytes) {
    for_each(p, p.rank, [&](char* dst, const char* src) { store_non_temporal(dst, src, p.item); });
    non_temporal_fence();
    return;
  }
  lengthen_inner(p);
  const Dim inner = p.dim[p.rank - 1];
  for_each(p, p.rank - 1, [&](char* dst, const char* src) { copy_line(dst, src, inner, p.item); });
}

constexpr int64_t kPartBytes = 64 << 10;  // a part of fewer bytes is not worth another thread

}  // namespace

void copy_bytes(void* dst, const void* src, int64_t bytes) {
  if (bytes >= kStreamBytes)
    copy_non_temporal(dst, src, bytes);
  else if (bytes > 0)
    copy_run(dst, src, bytes);
}

void copy_strided(const StridedCopy& copy) { copy_strided_part(copy, 0, 1); }

int copy_parts(const StridedCopy& copy, int workers) {
  return static_cast<int>(std::clamp<int64_t>(bytes_of(copy) / kPartBytes, 1, workers));
}

void copy_strided_part(const StridedCopy& copy, int part, int parts) {
  Plan p = make_plan(copy);
  if (p.empty) return;
  const bool around = bytes_of(copy) >= store_around_bytes();
  if (parts <= 1) return run(p, around);
  // Splits the longest outer dim, so that the parts are of equal size; a single run is split by
  // bytes.
  if (p.rank == 0 || (p.rank == 1 && p.dim[0].extent < parts && p.item >= kPartBytes)) {
    const int64_t begin = p.item * part / parts / 64 * 64;
    const int64_t end = part + 1 == parts ? p.item : p.item * (part + 1) / parts / 64 * 64;
    p.src += begin;
    p.dst += begin;
    p.item = end - begin;
    p.empty = begin == end;
    return run(p, around);
  }
  int cut = 0;
  while (cut + 1 < p.rank && p.dim[cut].extent < 4 * parts &&
         p.dim[cut + 1].extent > p.dim[cut].extent)
    ++cut;
  Dim& d = p.dim[cut];
  const int64_t begin = d.extent * part / parts, end = d.extent * (part + 1) / parts;
  p.src += begin * d.src;
  p.dst += begin * d.dst;
  d.extent = end - begin;
  p.empty = begin == end;
  run(p, around);
}

}  // namespace shmap::cpu
