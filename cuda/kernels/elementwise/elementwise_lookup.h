// The look-up functions that unary_kernel, binary_kernel and cast_kernel call: one for each .cu
// file.
#pragma once
#include "cuda/kernels/elementwise/elementwise.h"

namespace shmap::cuda {

UnaryFn unary_bits_kernel(UnaryOp op, DType dtype);  // of integers and bool
UnaryFn unary_f32_kernel(UnaryOp op);
UnaryFn unary_f64_kernel(UnaryOp op);
UnaryFn unary_half_kernel(UnaryOp op, DType dtype);

BinaryFn binary_integer_kernel(BinaryOp op, DType dtype);  // arithmetic
BinaryFn binary_bits_kernel(BinaryOp op, DType dtype);     // of integers and bool
BinaryFn binary_float_kernel(BinaryOp op, DType dtype);

UnaryFn cast_integer_kernel(DType from, DType to);  // from bool and integers
UnaryFn cast_float_kernel(DType from, DType to);    // from floats

}  // namespace shmap::cuda
