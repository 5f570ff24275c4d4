// Arithmetic of two integers.
#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"

namespace shmap::cuda {
namespace {

SHMAP_BINARY_OP(add)
SHMAP_BINARY_OP(sub)
SHMAP_BINARY_OP(mul)
SHMAP_BINARY_OP(div)
SHMAP_BINARY_OP(rem)
SHMAP_BINARY_OP(pow)

template <class Op, bool heavy, class T>
void run_binary(Operand a, Operand b, void* out, std::int64_t n, void* stream) {
  map<Op, heavy, T, T, T>("binary", out, n, stream, a, b);
}

template <class T>
BinaryFn find(BinaryOp op) {
  using U = scalar::Unsigned<T>;  // arithmetic that wraps is unsigned
  switch (op) {
    case BinaryOp::add:
      return run_binary<add_op, false, U>;
    case BinaryOp::sub:
      return run_binary<sub_op, false, U>;
    case BinaryOp::mul:
      return run_binary<mul_op, false, U>;
    case BinaryOp::div:
      return run_binary<div_op, true, T>;
    case BinaryOp::rem:
      return run_binary<rem_op, true, T>;
    case BinaryOp::pow:
      return run_binary<pow_op, true, T>;
    default:
      return nullptr;
  }
}

}  // namespace

BinaryFn binary_integer_kernel(BinaryOp op, DType dtype) {
  BinaryFn kernel = nullptr;
  return with_integer(dtype, [&]<class T>() { kernel = find<T>(op); }) ? kernel : nullptr;
}

}  // namespace shmap::cuda
