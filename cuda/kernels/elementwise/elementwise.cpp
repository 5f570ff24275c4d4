#include "cuda/kernels/elementwise/elementwise.h"

#include "cuda/kernels/elementwise/elementwise_lookup.h"

namespace shmap::cuda {

UnaryFn unary_kernel(UnaryOp op, DType dtype) {
  if (dtype == DType::prng_key) return nullptr;
  if (dtype == DType::f32) return unary_f32_kernel(op);
  if (dtype == DType::f64) return unary_f64_kernel(op);
  return is_floating(dtype) ? unary_half_kernel(op, dtype) : unary_bits_kernel(op, dtype);
}

BinaryFn binary_kernel(BinaryOp op, DType dtype) {
  if (dtype == DType::prng_key) return nullptr;
  if (is_floating(dtype)) return binary_float_kernel(op, dtype);
  if (const BinaryFn kernel = binary_bits_kernel(op, dtype)) return kernel;
  return binary_integer_kernel(op, dtype);
}

UnaryFn cast_kernel(DType from, DType to) {
  if (from == DType::prng_key || to == DType::prng_key) return nullptr;
  return is_floating(from) ? cast_float_kernel(from, to) : cast_integer_kernel(from, to);
}

}  // namespace shmap::cuda
