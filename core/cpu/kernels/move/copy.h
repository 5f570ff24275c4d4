// Strided and contiguous copies (core/base/strided_copy.h) for transpose, slice, concatenate,
// reverse, broadcast_in_dim, the interior of pad, dynamic_slice, dynamic_update_slice and
// resharding. Items of 1, 2, 4, 8 and 16 bytes are fast; they need not be aligned.
#pragma once
#include <cstdint>

#include "core/base/strided_copy.h"

namespace shmap::cpu {

using shmap::row_major_strides;
using shmap::StridedCopy;

void copy_strided(const StridedCopy& copy);

// The best number of parts for `workers` threads, and the copy of one part.
int copy_parts(const StridedCopy& copy, int workers);
void copy_strided_part(const StridedCopy& copy, int part, int parts);

// Copies `bytes` contiguous bytes: memcpy, with non-temporal stores where that is faster.
void copy_bytes(void* dst, const void* src, std::int64_t bytes);

}  // namespace shmap::cpu
