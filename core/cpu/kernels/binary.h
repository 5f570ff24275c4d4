// Elementwise kernels of two operands of one dtype, for one thread, over contiguous elements.
//
// f16 and bf16 are computed in f32 and rounded once. An element's result does not depend on its
// position, so that a range may be split anywhere.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

enum class BinaryOp : std::uint8_t {
  add,  // integers wrap: add, sub, mul, pow
  sub,
  mul,
  div,  // integers truncate; x / 0 is -1 (unsigned: all ones), the lowest / -1 is the lowest
  rem,  // the dividend's sign; integer x rem 0 is x
  pow,  // integers: x to a negative power is 0, but for 1 and -1
  max,  // NaN if either is; bool too
  min,
  atan2,
  bit_and,  // these three: integers and bool
  bit_or,
  bit_xor,
  shift_left,              // shifts by the width or more (the amount is read as unsigned) give 0,
  shift_right_arithmetic,  // or the sign in each bit, here
  shift_right_logical,
  nextafter,  // floats, the half types in their own steps
};
inline constexpr int kBinaryOpCount = static_cast<int>(BinaryOp::nextafter) + 1;

// out[i] = op(a[i], b[i]) for i < n; an operand marked scalar is one element, used for each i.
// `out` may be `a`, `b` or both, a scalar one too where n is 1, and must not overlap them
// otherwise.
using BinaryFn = void (*)(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out,
                          std::int64_t n);

// The kernel of `op` for operands of `dtype`; nullptr where the dtype has no such op.
BinaryFn binary_kernel(BinaryOp op, DType dtype);

}  // namespace shmap::cpu
