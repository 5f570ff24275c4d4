// Constant and linear contents, for one thread. Ranges well above cache size are written with
// non-temporal stores.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

// From this many bytes of output on, fill() and iota() write past the caches.
inline constexpr std::int64_t kNonTemporalBytes = std::int64_t{8} << 20;

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

// memcpy with non-temporal stores: for a destination that is not read soon.
void copy_non_temporal(void* out, const void* in, std::int64_t bytes);

}  // namespace shmap::cpu
