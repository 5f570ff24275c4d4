// Elementwise kernels, enqueued on a stream: out[i] = op(operands[i]) for i < n.
//
// Semantics are those of cuda/kernels/embedded/scalar.h. `out` may be any whole operand whose
// elements have the result's size, and must not overlap operands otherwise. Addresses need the
// alignment of their elements only, but multiples of 16 bytes are faster. Throw DeviceError where
// the launch fails.
#pragma once
#include <cstdint>

#include "core/base/elementwise_ops.h"
#include "cuda/kernels/launch/operand.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

using UnaryFn = void (*)(Operand in, void* out, std::int64_t n, void* stream);
using BinaryFn = void (*)(Operand a, Operand b, void* out, std::int64_t n, void* stream);

// The kernel of `op` for operands of `dtype`, or of a conversion; nullptr where it does not exist.
UnaryFn unary_kernel(UnaryOp op, DType dtype);
BinaryFn binary_kernel(BinaryOp op, DType dtype);
BinaryFn compare_kernel(CompareOp op, DType dtype);
UnaryFn cast_kernel(DType from, DType to);

// out[i] = pred[i] ? on_true[i] : on_false[i]: elements of `itemsize` bytes (1, 2, 4 or 8).
void select(Operand pred, Operand on_false, Operand on_true, void* out, int itemsize,
            std::int64_t n, void* stream);
// out[i] = min(max(low[i], x[i]), high[i]). dtype: all but prng_key.
void clamp(DType dtype, Operand low, Operand x, Operand high, void* out, std::int64_t n,
           void* stream);

}  // namespace shmap::cuda
