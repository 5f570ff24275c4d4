// The lookups that cast_kernel puts together.
#pragma once
#include "core/cpu/kernels/cast.h"

namespace shmap::cpu {

CastFn cast_plain_kernel(DType from, DType to);  // among bool, integers, f32 and f64

// Between f32 and the half types.
CastFn half_to_f32_kernel(DType half);
CastFn f32_to_half_kernel(DType half);

// f64 to f32, rounded to odd where inexact: rounding that once more, to nearest in a half type,
// gives what one rounding would.
CastFn f64_to_odd_f32_kernel();

}  // namespace shmap::cpu
