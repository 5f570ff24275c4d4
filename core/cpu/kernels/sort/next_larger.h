// The search of top_k for the next element that may belong to the largest.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

// Returns the first i in [from, len) for which row[i] is larger than *bound or is NaN, or len if
// there is none. For half types, may also return an i whose element equals *bound (a zero). *bound
// is not NaN.
using NextLargerFn = std::int64_t (*)(const void* row, std::int64_t from, std::int64_t len,
                                      const void* bound);
// nullptr for prng_key.
NextLargerFn next_larger_kernel(DType dtype);

}  // namespace shmap::cpu
