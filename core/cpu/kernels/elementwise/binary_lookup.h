// Look-up functions that binary_kernel combines, one for each .cpp of kernels.
#pragma once
#include "core/cpu/kernels/elementwise/binary.h"

namespace shmap::cpu {

BinaryFn binary_int_kernel(BinaryOp op, DType dtype);   // arithmetic of integers; max, min of bool
BinaryFn binary_bits_kernel(BinaryOp op, DType dtype);  // bitwise operations, shifts
BinaryFn binary_float_kernel(BinaryOp op, DType dtype);
BinaryFn binary_bf16_kernel(
    BinaryOp op);  // f32 arithmetic on bf16; nullptr: computed in blocks of f32
BinaryFn binary_math_f32_kernel(BinaryOp op);  // pow and atan2
BinaryFn binary_math_f64_kernel(BinaryOp op);

}  // namespace shmap::cpu
