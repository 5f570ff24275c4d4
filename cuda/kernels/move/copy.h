// Strided and contiguous copies (core/base/strided_copy.h), enqueued on a stream, for transpose,
// slice, concatenate, reverse, broadcast_in_dim and resharding. Addresses and strides need no
// alignment, but those aligned to whole items are faster. The stream's device must be able to
// access src and dst.
#pragma once
#include <cstdint>

#include "core/base/strided_copy.h"

namespace shmap::cuda {

using shmap::row_major_strides;
using shmap::StridedCopy;

void copy_strided(const StridedCopy& copy, void* stream);
// Makes the same copy between n pairs of addresses, from src[i] to dst[i], in few kernels; the
// addresses in `box` are ignored.
void copy_strided_boxes(const StridedCopy& box, const void* const* src, void* const* dst, int n,
                        void* stream);

// `bytes` contiguous bytes.
void copy_bytes(void* dst, const void* src, std::int64_t bytes, void* stream);
// Sets `bytes` bytes to 0.
void zero_bytes(void* dst, std::int64_t bytes, void* stream);

}  // namespace shmap::cuda
