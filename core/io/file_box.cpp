#include "core/io/file_box.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "shmap/error.h"

namespace shmap::io {

namespace {

template <int kItemsize>
void copy_columns(const std::byte* src, std::byte* dst, std::int64_t fast, std::int64_t fast_stride,
                  std::int64_t slow, std::int64_t src_stride, std::int64_t dst_stride) {
  // Tiles of 32 × 32 elements keep the cache lines of both sides in the cache.
  constexpr std::int64_t kTile = 32;
  for (std::int64_t j0 = 0; j0 < slow; j0 += kTile) {
    const std::int64_t j1 = std::min(j0 + kTile, slow);
    for (std::int64_t i0 = 0; i0 < fast; i0 += kTile) {
      const std::int64_t i1 = std::min(i0 + kTile, fast);
      for (std::int64_t i = i0; i < i1; ++i) {
        for (std::int64_t j = j0; j < j1; ++j) {
          std::memcpy(dst + (i * fast_stride + j * dst_stride) * kItemsize,
                      src + (i + j * src_stride) * kItemsize, kItemsize);
        }
      }
    }
  }
}

}  // namespace

void check_box(const Shape& shape, std::span<const Slice> box, const char* what) {
  bool ok = box.size() == shape.size();
  for (std::size_t d = 0; ok && d < box.size(); ++d)
    ok = box[d].start >= 0 && box[d].start <= box[d].stop && box[d].stop <= shape[d];
  if (ok) return;
  std::string given;
  for (const Slice& s : box)
    given += (given.empty() ? "" : ", ") + std::to_string(s.start) + ":" + std::to_string(s.stop);
  throw ValueError(std::string(what) + ": box [" + given + "] does not lie in shape " +
                   to_string(shape) +
                   ": wanted a slice for each dim, 0 <= start <= stop <= extent");
}

BoxRuns::BoxRuns(const Shape& shape, std::span<const Slice> box, int itemsize) {
  for (const Slice& s : box)
    if (s.start == s.stop) return;
  std::int64_t stride = itemsize;
  run_bytes_ = itemsize;
  int d = shape.rank() - 1;
  // A run covers the innermost dims that the box covers whole, and a range of one more dim.
  for (bool whole = true; d >= 0 && whole; --d) {
    const std::int64_t n = box[d].stop - box[d].start;
    offset_ += box[d].start * stride;
    run_bytes_ *= n;
    stride *= shape[d];
    whole = n == shape[d];
  }
  if (d >= 0) {
    row_runs_ = box[d].stop - box[d].start;
    stride_ = stride;
    offset_ += box[d].start * stride;
    stride *= shape[d];
    --d;
  }
  for (; d >= 0; --d) {
    extents_[outer_] = box[d].stop - box[d].start;
    strides_[outer_] = stride;
    index_[outer_] = 0;
    offset_ += box[d].start * stride;
    stride *= shape[d];
    ++outer_;
  }
}

bool BoxRuns::next() {
  for (int d = 0; d < outer_; ++d) {
    offset_ += strides_[d];
    if (++index_[d] < extents_[d]) return true;
    offset_ -= extents_[d] * strides_[d];
    index_[d] = 0;
  }
  return false;
}

void copy_fortran_to_strided(const std::byte* src, std::byte* dst, const Shape& extents,
                             std::span<const std::int64_t> dst_strides, int itemsize) {
  const int rank = extents.rank();
  std::int64_t src_strides[kMaxRank];
  std::int64_t stride = 1;
  for (int d = 0; d < rank; ++d) {
    if (extents[d] == 0) return;
    src_strides[d] = stride;
    stride *= extents[d];
  }
  // Copies two dims as a matrix: the first dim, in which src is contiguous, and the last dim of
  // more than one element, in which dst has its smallest stride.
  int slow = rank - 1;
  while (slow > 0 && extents[slow] == 1) --slow;
  const std::int64_t fast_count = rank == 0 ? 1 : extents[0];
  const std::int64_t fast_stride = rank == 0 ? 1 : dst_strides[0];
  const bool matrix = slow > 0;
  const std::int64_t slow_count = matrix ? extents[slow] : 1;
  const std::int64_t slow_src = matrix ? src_strides[slow] : 0;
  const std::int64_t slow_dst = matrix ? dst_strides[slow] : 0;

  std::int64_t index[kMaxRank] = {};
  for (;;) {
    switch (itemsize) {
      case 1:
        copy_columns<1>(src, dst, fast_count, fast_stride, slow_count, slow_src, slow_dst);
        break;
      case 2:
        copy_columns<2>(src, dst, fast_count, fast_stride, slow_count, slow_src, slow_dst);
        break;
      case 4:
        copy_columns<4>(src, dst, fast_count, fast_stride, slow_count, slow_src, slow_dst);
        break;
      default:
        copy_columns<8>(src, dst, fast_count, fast_stride, slow_count, slow_src, slow_dst);
        break;
    }
    int d = 1;
    for (; d < slow; ++d) {
      src += src_strides[d] * itemsize;
      dst += dst_strides[d] * itemsize;
      if (++index[d] < extents[d]) break;
      src -= extents[d] * src_strides[d] * itemsize;
      dst -= extents[d] * dst_strides[d] * itemsize;
      index[d] = 0;
    }
    if (d >= slow) return;
  }
}

}  // namespace shmap::io
