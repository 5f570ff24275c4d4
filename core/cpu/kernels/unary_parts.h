// The parts of unary_kernel, one for each .cpp that has kernels; null where a part has no kernel.
#pragma once
#include "core/cpu/kernels/unary.h"

namespace shmap::cpu {

// Arithmetic and operations on bits; for f16 and bf16 neg and abs alone.
UnaryFn unary_arith_kernel(UnaryOp op, DType dtype);
UnaryFn unary_math_f32_kernel(UnaryOp op);
UnaryFn unary_math_f64_kernel(UnaryOp op);

}  // namespace shmap::cpu
