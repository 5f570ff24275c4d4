// The index of the largest or smallest element, for one thread.
#pragma once
#include <cstdint>

#include "core/base/arg_reduction.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// in[outer, reduced, inner], row-major -> out[outer, inner], indices into the reduced dim: the
// first of equal elements; a NaN wins over every number, the first NaN over later ones. `reduced`
// is at least 1.
using ArgReduceFn = void (*)(const void* in, void* out, std::int64_t outer, std::int64_t reduced,
                             std::int64_t inner);

// The kernel for `dtype` (bool, integers, floats) with indices of `index_dtype` (i32 or i64);
// nullptr for others.
ArgReduceFn arg_reduce_kernel(ArgReduction op, DType dtype, DType index_dtype);

}  // namespace shmap::cpu
