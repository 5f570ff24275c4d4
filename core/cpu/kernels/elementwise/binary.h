// Elementwise kernels of two operands of one dtype, for one thread, over contiguous elements.
//
// f16 and bf16 are computed in f32 and rounded once. An element's result does not depend on its
// position, so that a range may be split anywhere.
//
// Integers wrap. Their quotient truncates; x / 0 is -1 (unsigned: all ones), the lowest / -1 is the
// lowest. rem has the dividend's sign; integer x rem 0 is x. An integer to a negative power is 0,
// but for 1 and -1. max and min are NaN if either operand is. Shifts by the width or more, the
// amount read as unsigned, give 0, or the sign in each bit where they are arithmetic.
#pragma once
#include <cstdint>

#include "core/base/elementwise_ops.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// out[i] = op(a[i], b[i]) for i < n; an operand marked scalar is one element, used for each i.
// `out` may be `a`, `b` or both, a scalar one too where n is 1, and must not overlap them
// otherwise.
using BinaryFn = void (*)(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out,
                          std::int64_t n);

// The kernel of `op` for operands of `dtype`; nullptr where the dtype has no such op.
BinaryFn binary_kernel(BinaryOp op, DType dtype);

}  // namespace shmap::cpu
