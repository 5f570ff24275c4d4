// The one strided copy: dst[i] = src[i] for every index i of an extent[0] × … × extent[rank - 1]
// grid, each side with strides of its own. It serves transpose, slice, concatenate, reverse,
// broadcast_in_dim, the interior of pad, dynamic_slice, dynamic_update_slice and resharding.
//
// Strides are in bytes and may be negative or, in src, zero (a broadcast). No two indices may name
// one dst element, and src and dst may not overlap. itemsize is any positive number of bytes; 1, 2,
// 4, 8 and 16 are fast. Elements need not be aligned.
#pragma once
#include <cstdint>

#include "shmap/shape.h"

namespace shmap::cpu {

struct StridedCopy {
  int rank = 0;
  std::int64_t extent[kMaxRank];
  std::int64_t dst_stride[kMaxRank];
  std::int64_t src_stride[kMaxRank];
  int itemsize = 0;
  const void* src = nullptr;  // the element at index 0, …, 0
  void* dst = nullptr;
};

void copy_strided(const StridedCopy& copy);

// In how many parts the copy is best cut for `workers` threads, and one of them.
int copy_parts(const StridedCopy& copy, int workers);
void copy_strided_part(const StridedCopy& copy, int part, int parts);

// `bytes` contiguous bytes: memcpy, with non-temporal stores where that is faster.
void copy_bytes(void* dst, const void* src, std::int64_t bytes);
// Fills in `stride` (bytes) for a row-major array of these extents.
void row_major_strides(int rank, const std::int64_t* extent, int itemsize, std::int64_t* stride);

}  // namespace shmap::cpu
