// The one strided copy: dst[i] = src[i] for every index i of an extent[0] × … × extent[rank - 1]
// grid, each side with strides of its own, enqueued on a stream. It serves transpose, slice,
// concatenate, reverse, broadcast_in_dim and resharding.
//
// Strides are in bytes and may be negative or, in src, zero (a broadcast). No two indices may name
// one dst element, and src and dst may not overlap. itemsize is any positive number of bytes.
// Addresses and strides need no alignment, but those of whole items are faster. src and dst are
// memory that the stream's device can reach.
#pragma once
#include <cstdint>

#include "shmap/shape.h"

namespace shmap::cuda {

struct StridedCopy {
  int rank = 0;
  std::int64_t extent[kMaxRank];
  std::int64_t dst_stride[kMaxRank];
  std::int64_t src_stride[kMaxRank];
  int itemsize = 0;
  const void* src = nullptr;  // the element at index 0, …, 0
  void* dst = nullptr;
};

void copy_strided(const StridedCopy& copy, void* stream);
// The same copy between n pairs of places, from src[i] to dst[i], in few kernels; those of `box`
// are not read.
void copy_strided_boxes(const StridedCopy& box, const void* const* src, void* const* dst, int n,
                        void* stream);

// `bytes` contiguous bytes.
void copy_bytes(void* dst, const void* src, std::int64_t bytes, void* stream);
// Sets `bytes` bytes to 0.
void zero_bytes(void* dst, std::int64_t bytes, void* stream);
// Fills in `stride` (bytes) for a row-major array of these extents.
void row_major_strides(int rank, const std::int64_t* extent, int itemsize, std::int64_t* stride);

}  // namespace shmap::cuda
