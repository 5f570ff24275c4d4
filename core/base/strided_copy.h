// The strided copy, for which each backend has a kernel: dst[i] = src[i] for every index i of an
// extent[0] × … × extent[rank - 1] grid, with separate strides for dst and src. Strides are in
// bytes and may be negative or, in src, zero (a broadcast). No two indices may refer to one dst
// element, and src and dst must not overlap. itemsize is any positive number of bytes.
#pragma once
#include <algorithm>
#include <cstdint>

#include "shmap/shape.h"

namespace shmap {

struct StridedCopy {
  int rank = 0;
  std::int64_t extent[kMaxRank];
  std::int64_t dst_stride[kMaxRank];
  std::int64_t src_stride[kMaxRank];
  int itemsize = 1;
  const void* src = nullptr;  // the element at index 0, …, 0
  void* dst = nullptr;
};

// Sets `stride` (bytes) for a row-major array of these extents.
inline void row_major_strides(int rank, const std::int64_t* extent, int itemsize,
                              std::int64_t* stride) {
  // Unsigned: where one extent is 0, the product of the others may overflow. Such a stride is never
  // used.
  auto step = static_cast<std::uint64_t>(itemsize);
  for (int d = rank; d-- > 0;) {
    stride[d] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(extent[d]);
  }
}

// A copy of a box of `extent` between two row-major arrays of its rank; the caller sets src and
// dst.
inline StridedCopy box_copy(const Shape& extent, const Shape& src_shape, const Shape& dst_shape,
                            int itemsize) {
  StridedCopy copy;
  copy.rank = extent.rank();
  copy.itemsize = itemsize;
  std::copy(extent.begin(), extent.end(), copy.extent);
  row_major_strides(copy.rank, src_shape.data(), itemsize, copy.src_stride);
  row_major_strides(copy.rank, dst_shape.data(), itemsize, copy.dst_stride);
  return copy;
}

// The number of bytes that the copy moves.
inline std::int64_t bytes_of(const StridedCopy& copy) {
  std::int64_t bytes = copy.itemsize;
  for (int d = 0; d < copy.rank; ++d) bytes *= copy.extent[d];
  return bytes;
}

}  // namespace shmap
