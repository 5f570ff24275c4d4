// Unary kernels of integers and bool.
#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"

namespace shmap::cuda {
namespace {

SHMAP_UNARY_OP(neg)
SHMAP_UNARY_OP(abs)
SHMAP_UNARY_OP(sign)
SHMAP_UNARY_OP(square)
SHMAP_UNARY_OP(not_)
SHMAP_UNARY_OP(logical_not)
SHMAP_UNARY_OP(population_count)
SHMAP_UNARY_OP(clz)

template <class Op, class T>
void run_unary(Operand in, void* out, std::int64_t n, void* stream) {
  map<Op, false, T, T>("unary", out, n, stream, in);
}

template <class T>
UnaryFn find(UnaryOp op) {
  using U = scalar::Unsigned<T>;
  switch (op) {
    case UnaryOp::neg:
      return run_unary<neg_op, U>;
    case UnaryOp::abs:
      return run_unary<abs_op, T>;
    case UnaryOp::sign:
      return run_unary<sign_op, T>;
    case UnaryOp::square:
      return run_unary<square_op, U>;
    case UnaryOp::not_:
      return run_unary<not__op, U>;
    case UnaryOp::population_count:
      return run_unary<population_count_op, U>;
    case UnaryOp::clz:
      return run_unary<clz_op, U>;
    default:
      return nullptr;
  }
}

}  // namespace

UnaryFn unary_bits_kernel(UnaryOp op, DType dtype) {
  if (dtype == DType::bool_)
    return op == UnaryOp::not_ ? run_unary<logical_not_op, Boolean> : nullptr;
  UnaryFn kernel = nullptr;
  return with_integer(dtype, [&]<class T>() { kernel = find<T>(op); }) ? kernel : nullptr;
}

}  // namespace shmap::cuda
