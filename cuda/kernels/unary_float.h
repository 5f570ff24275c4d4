// The unary kernels of floats, for the .cu files that each make them for some of the dtypes.
#pragma once
#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/map.h"

namespace shmap::cuda {
namespace {

// clang-format off
#define SHMAP_LIGHT(X) X(neg) X(abs) X(sign) X(square) X(floor) X(ceil) X(round) X(sqrt) X(rsqrt)
#define SHMAP_HEAVY(X)                                                                  \
  X(exp) X(expm1) X(log) X(log1p) X(sin) X(cos) X(tan) X(tanh) X(asin) X(acos) X(atan)  \
  X(sinh) X(cosh) X(cbrt) X(logistic) X(erf) X(erf_inv)
// clang-format on
SHMAP_LIGHT(SHMAP_UNARY_OP)
SHMAP_HEAVY(SHMAP_UNARY_OP)

struct is_finite_op {
  template <class T>
  static __device__ __forceinline__ Boolean run(T x) {
    return {scalar::is_finite(scalar::widen(x))};
  }
};

template <class Op, bool heavy, class Out, class T>
void run_unary(Operand in, void* out, std::int64_t n, void* stream) {
  map<Op, heavy, Out, T>("unary", out, n, stream, in);
}

template <class T>
UnaryFn find_unary_float(UnaryOp op) {
  switch (op) {
#define SHMAP_CASE(name) \
  case UnaryOp::name:    \
    return run_unary<name##_op, false, T, T>;
    SHMAP_LIGHT(SHMAP_CASE)
#undef SHMAP_CASE
#define SHMAP_CASE(name) \
  case UnaryOp::name:    \
    return run_unary<name##_op, true, T, T>;
    SHMAP_HEAVY(SHMAP_CASE)
#undef SHMAP_CASE
    case UnaryOp::is_finite:
      return run_unary<is_finite_op, false, Boolean, T>;
    case UnaryOp::not_:
      return nullptr;
  }
  return nullptr;
}
#undef SHMAP_LIGHT
#undef SHMAP_HEAVY

}  // namespace
}  // namespace shmap::cuda
