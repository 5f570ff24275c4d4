// Sorting along one dim of arrays laid out as [outer, len, inner], and the k largest along the last
// dim, on a GPU (core/base/sorts.h). No `out` may be an `in`.
#pragma once
#include <cstdint>

#include "core/base/sorts.h"

namespace shmap::cuda {

// Bytes of scratch; does not depend on addresses. TypeError where a key's dtype has no order,
// ValueError where the dim is too long.
std::int64_t sort_scratch(const Sort& s);
// `stream` is a cudaStream_t here and below.
void sort(const Sort& s, void* scratch, void* stream);

std::int64_t top_k_scratch(const TopK& t);
void top_k(const TopK& t, void* scratch, void* stream);

}  // namespace shmap::cuda
