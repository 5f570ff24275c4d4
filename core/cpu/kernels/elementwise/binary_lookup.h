// Look-up functions that binary_kernel combines, one for each .cpp of kernels.
#pragma once
#include "core/cpu/kernels/elementwise/binary.h"

namespace shmap::cpu {

BinaryFn binary_int_kernel(BinaryOp op, DType dtype);   // arithmetic of integers; max, min of bool
BinaryFn binary_bits_kernel(BinaryOp op, DType dtype);  // bitwise operations, shifts
BinaryFn binary_float_kernel(BinaryOp op, DType dtype);
// f32 arithmetic on bf16; nullptr if the op is computed in blocks of f32.
BinaryFn binary_bf16_kernel(BinaryOp op);
BinaryFn binary_math_f32_kernel(BinaryOp op);  // pow and atan2
BinaryFn binary_math_f64_kernel(BinaryOp op);

}  // namespace shmap::cpu
