#include "core/cpu/kernels/move/pad.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/word_type.h"
#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/move/copy.h"

namespace shmap::cpu {
namespace {

using std::int64_t;

constexpr int64_t kPartBytes = 64 << 10;  // fewer bytes are not worth another thread

// The items of src that are copied to dst along one dim, and the position of the first in dst.
struct CopiedItems {
  int64_t first, count, at;
};

CopiedItems copied_items(int64_t extent, int64_t low, int64_t interior, int64_t out) {
  const int64_t step = interior + 1;
  const int64_t first = low < 0 ? (-low + step - 1) / step : 0;
  const int64_t at = low + first * step;
  const int64_t room = at < out ? (out - 1 - at) / step + 1 : 0;
  return {first, std::max<int64_t>(0, std::min(extent - first, room)), at};
}

// Fills a few items itself, and calls fill() for more.
void fill_gap(char* out, const void* value, int itemsize, int64_t n) {
  constexpr int64_t few = 32;
  if (n > few) return fill(out, value, itemsize, n);
  const bool filled = with_word(itemsize, [&]<class Item>() {
    Item item;
    std::memcpy(&item, value, sizeof item);
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(out + i * static_cast<int64_t>(sizeof item), &item, sizeof item);
    return true;
  });
  if (!filled) fill(out, value, itemsize, n);
}

// The box that src fills without gaps in a stretch of dst, in the dims from `cut` on. In dims after
// `runs` the box is as large as dst.
struct Box {
  int runs;
  CopiedItems copied[kMaxRank];
  int64_t stride[kMaxRank];  // bytes in dst
  const void* value;
  int itemsize;
};

// Fills the memory from `filled` to the box's runs at `base` and dim d, and between these runs.
// Returns the end of the last run.
char* fill_between(const Box& box, int d, char* base, char* filled) {
  char* const first = base + box.copied[d].at * box.stride[d];
  if (d == box.runs) {
    fill_gap(filled, box.value, box.itemsize, (first - filled) / box.itemsize);
    return first + box.copied[d].count * box.stride[d];
  }
  for (int64_t i = 0; i < box.copied[d].count; ++i)
    filled = fill_between(box, d + 1, first + i * box.stride[d], filled);
  return filled;
}

// Pads the range [begin, end) of dst's dim `cut`.
void run(const Pad& p, int cut, int64_t begin, int64_t end) {
  int64_t out[kMaxRank], src_stride[kMaxRank], dst_stride[kMaxRank];
  int64_t items = 1;
  for (int d = 0; d < p.rank; ++d) {
    out[d] = p.padded[d];
    items *= out[d];
  }
  if (items == 0) return;
  row_major_strides(p.rank, p.extent, p.itemsize, src_stride);
  row_major_strides(p.rank, out, p.itemsize, dst_stride);
  char* const base = static_cast<char*>(p.dst) + (p.rank > 0 ? begin * dst_stride[cut] : 0);

  Box box = {cut, {}, {}, p.value, p.itemsize};
  bool gaps = false;  // there are gaps between items of src
  StridedCopy copy;
  copy.rank = p.rank;
  copy.itemsize = p.itemsize;
  const char* src = static_cast<const char*>(p.src);
  char* dst = base;
  int64_t copied = 1, range = 1;
  for (int d = 0; d < p.rank; ++d) {
    const bool here = d == cut;
    const int64_t size = here ? end - begin : out[d];
    const CopiedItems items = box.copied[d] =
        copied_items(p.extent[d], here ? p.low[d] - begin : p.low[d], p.interior[d], size);
    box.stride[d] = dst_stride[d];
    if (d >= cut && items.count < size) box.runs = d;
    gaps |= p.interior[d] > 0 && items.count > 1;
    copy.extent[d] = items.count;
    copy.src_stride[d] = src_stride[d];
    copy.dst_stride[d] = dst_stride[d] * (p.interior[d] + 1);
    if (items.count > 0) {
      src += items.first * src_stride[d];
      dst += items.at * dst_stride[d];
    }
    copied *= items.count;
    range *= size;
  }
  // If runs are short or have gaps, everything is filled first, which takes less time than filling
  // between the runs.
  constexpr int64_t short_run = 512;  // bytes
  gaps |= box.copied[box.runs].count * box.stride[box.runs] < short_run;
  // If there are dims outside the cut dim, a block of `range` items is not contiguous.
  if (copied < range) {
    int64_t outer = 1;
    for (int d = 0; d < cut; ++d) outer *= out[d];
    const int64_t stride = cut > 0 ? dst_stride[cut - 1] : 0, stretch = range / outer;
    for (int64_t o = 0; o < outer; ++o) {
      bool inside = copied > 0 && !gaps;
      for (int64_t rest = o, d = cut - 1; d >= 0 && inside; rest /= out[d--]) {
        const int64_t from_box = rest % out[d] - box.copied[d].at;
        inside = from_box >= 0 && from_box < box.copied[d].count;
      }
      char* const at_o = base + o * stride;
      char* const filled = inside ? fill_between(box, cut, at_o, at_o) : at_o;
      fill_gap(filled, p.value, p.itemsize, stretch - (filled - at_o) / p.itemsize);
    }
  }
  if (copied == 0) return;
  copy.src = src;
  copy.dst = dst;
  copy_strided(copy);
}

// The dim that is split into parts: the first one that is long enough, or else the longest.
int cut_dim(const Pad& p, int parts) {
  int longest = 0;
  int64_t longest_extent = -1;
  for (int d = 0; d < p.rank; ++d) {
    const int64_t extent = p.padded[d];
    if (extent >= 4 * parts) return d;
    if (extent > longest_extent) longest = d, longest_extent = extent;
  }
  return longest;
}

}  // namespace

void pad(const Pad& p) { pad_part(p, 0, 1); }

int pad_parts(const Pad& p, int workers) {
  int64_t bytes = p.itemsize;
  for (int d = 0; d < p.rank; ++d) bytes *= p.padded[d];
  return static_cast<int>(std::clamp<int64_t>(bytes / kPartBytes, 1, workers));
}

void pad_part(const Pad& p, int part, int parts) {
  if (p.rank == 0) {
    if (part == 0) run(p, 0, 0, 1);
    return;
  }
  const int cut = cut_dim(p, parts);
  const int64_t extent = p.padded[cut];
  const int64_t begin = extent * part / parts, end = extent * (part + 1) / parts;
  if (begin < end) run(p, cut, begin, end);
}

}  // namespace shmap::cpu
