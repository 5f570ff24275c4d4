// Constant and linear contents, for one thread. Ranges of store_around_bytes() and more are written
// past the caches.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

// Writes n elements of `itemsize` bytes (any, at least 1), each a copy of the one at `value`, which
// must not lie in `out`.
void fill(void* out, const void* value, int itemsize, std::int64_t n);

// out[i] = start + (first + i) * step for i < n, reduced to the integer dtype modulo its width, or
// rounded once to the float dtype. dtype: integers and floats.
void iota(DType dtype, void* out, std::int64_t n, std::int64_t first = 0, std::int64_t start = 0,
          std::int64_t step = 1);

// The same for real start and step, computed in f64 and rounded to the dtype (an integer dtype:
// truncated and saturated).
void linear(DType dtype, void* out, std::int64_t n, std::int64_t first, double start, double step);

}  // namespace shmap::cpu
