// Look-up functions that unary_kernel combines, one for each .cpp of kernels; null if there is no
// kernel.
#pragma once
#include "core/cpu/kernels/elementwise/unary.h"

namespace shmap::cpu {

// Arithmetic and operations on bits; for f16 and bf16 only neg and abs.
UnaryFn unary_arith_kernel(UnaryOp op, DType dtype);
UnaryFn unary_math_f32_kernel(UnaryOp op);
UnaryFn unary_math_f64_kernel(UnaryOp op);

}  // namespace shmap::cpu
