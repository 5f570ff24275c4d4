// The one strided copy, for which each backend has a kernel: dst[i] = src[i] for every index i of
// an extent[0] × … × extent[rank - 1] grid, with separate strides for dst and src. Strides are in
// bytes and may be negative or, in src, zero (a broadcast). No two indices may refer to one dst
// element, and src and dst must not overlap. itemsize is any positive number of bytes.
#pragma once
#include <cstdint>

#include "shmap/shape.h"

namespace shmap {

struct StridedCopy {
  int rank = 0;
  std::int64_t extent[kMaxRank];
  std::int64_t dst_stride[kMaxRank];
  std::int64_t src_stride[kMaxRank];
  int itemsize = 0;
  const void* src = nullptr;  // the element at index 0, …, 0
  void* dst = nullptr;
};

// Sets `stride` (bytes) for a row-major array of these extents.
inline void row_major_strides(int rank, const std::int64_t* extent, int itemsize,
                              std::int64_t* stride) {
  std::int64_t step = itemsize;
  for (int d = rank; d-- > 0;) {
    stride[d] = step;
    step *= extent[d];
  }
}

}  // namespace shmap
