// Elementwise kernels of one operand, for one thread, over contiguous elements.
//
// f16 and bf16 are computed in f32 and rounded once. Special values are those of the C library;
// f32 and f64 transcendentals are within 4 ulp over their whole range. An element's result does not
// depend on its position, so that a range may be split anywhere.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

enum class UnaryOp : std::uint8_t {
  neg,    // integers wrap
  abs,    // integers wrap; of an unsigned integer: the identity
  sign,   // -1, 0, 1; a float zero or NaN stays as it is
  floor,  // this one to erf_inv: floats only, but for square
  ceil,
  round,  // half to even
  exp,
  exp2,
  expm1,
  log,
  log1p,
  sin,
  cos,
  tan,
  tanh,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  asinh,
  acosh,
  atanh,
  sqrt,
  rsqrt,
  cbrt,
  logistic,
  erf,
  erfc,
  erf_inv,
  square,  // integers wrap
  reciprocal,
  not_,                 // bitwise; logical for bool
  population_count,     // integers
  count_leading_zeros,  // integers; the width for 0
  is_finite,            // this one and the next two: floats, and the result is bool
  is_nan,
  is_inf,
};
inline constexpr int kUnaryOpCount = static_cast<int>(UnaryOp::is_inf) + 1;

// out[i] = op(in[i]) for i < n. `out` may be `in` where their elements have one size, and must not
// overlap it otherwise.
using UnaryFn = void (*)(const void* in, void* out, std::int64_t n);

// The kernel of `op` for operands of `dtype`; nullptr where the dtype has no such op.
UnaryFn unary_kernel(UnaryOp op, DType dtype);

}  // namespace shmap::cpu
