// Elementwise kernels of one operand, for one thread, over contiguous elements.
//
// f16 and bf16 are computed in f32 and rounded once. Special values are those of the C library;
// f32 and f64 transcendentals are within 4 ulp over their whole range. An element's result does not
// depend on its position, so that a range may be split anywhere. Integers wrap; abs of unsigned
// ones is the identity; a float zero or NaN is its own sign; round goes to the even one of two;
// not_ of a bool is logical; clz of 0 is the width.
#pragma once
#include <cstdint>

#include "core/base/elementwise_ops.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// out[i] = op(in[i]) for i < n. `out` may be `in` where their elements have one size, and must not
// overlap it otherwise.
using UnaryFn = void (*)(const void* in, void* out, std::int64_t n);

// The kernel of `op` for operands of `dtype`; nullptr where the dtype has no such op.
UnaryFn unary_kernel(UnaryOp op, DType dtype);

}  // namespace shmap::cpu
