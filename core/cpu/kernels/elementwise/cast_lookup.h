// Look-up functions that cast_kernel combines.
#pragma once
#include "core/cpu/kernels/elementwise/cast.h"

namespace shmap::cpu {

CastFn cast_plain_kernel(DType from, DType to);  // among bool, integers, f32 and f64

// Conversions between f32 and the half types.
CastFn half_to_f32_kernel(DType half);
CastFn f32_to_half_kernel(DType half);

// f64 -> f32, rounded to odd if inexact: a second rounding, to nearest in a half type, then gives
// the same result as a single rounding.
CastFn f64_to_odd_f32_kernel();

}  // namespace shmap::cpu
