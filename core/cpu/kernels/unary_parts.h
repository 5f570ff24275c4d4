// The lookups that unary_kernel puts together, one for each .cpp of kernels.
#pragma once
#include "core/cpu/kernels/unary.h"

namespace shmap::cpu {

// All but the transcendentals; of the half types neg and abs only.
UnaryFn unary_arith_kernel(UnaryOp op, DType dtype);
UnaryFn unary_math_f32_kernel(UnaryOp op);
UnaryFn unary_math_f64_kernel(UnaryOp op);

}  // namespace shmap::cpu
