// Conversions between dtypes, for one thread, over contiguous elements.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

// out[i] = in[i] converted, for i < n. `out` may be `in` where their elements have one size, and
// must not overlap it otherwise.
using CastFn = void (*)(const void* in, void* out, std::int64_t n);

// The kernel for a pair of dtypes; nullptr if either is prng_key. Integers wrap; floats round to
// nearest even, once (an integer becomes a half type through f32); a float becomes an integer by
// truncation, saturated, NaN becoming 0; anything becomes bool as x != 0 (NaN: true).
CastFn cast_kernel(DType from, DType to);

// Returns the kernel f32 -> f32 that gives the value of a cast to bf16 and back.
CastFn round_to_bf16_kernel();
// f32 -> bf16 for values that are already rounded to bf16; the lower bits of other values are cut.
CastFn rounded_to_bf16_kernel();

}  // namespace shmap::cpu
