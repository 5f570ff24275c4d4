// The unary kernels of floats, for the .cu files that each make them for some of the dtypes.
#pragma once
#include "cuda/kernels/elementwise/elementwise.h"
#include "cuda/kernels/elementwise/map.h"

namespace shmap::cuda {
namespace {

#define SHMAP_FLOAT_OP(name, domain, ...) SHMAP_IF_FLOATS_##domain(SHMAP_UNARY_OP(name))
SHMAP_UNARY_OPS(SHMAP_FLOAT_OP)
#undef SHMAP_FLOAT_OP

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
#define SHMAP_FLOAT_CASE(name, domain, work, derivative) \
  SHMAP_IF_FLOATS_##domain(case UnaryOp::name            \
                           : return run_unary<name##_op, Work::work == Work::heavy, T, T>;)
    SHMAP_UNARY_OPS(SHMAP_FLOAT_CASE)
#undef SHMAP_FLOAT_CASE
    case UnaryOp::is_finite:
      return run_unary<is_finite_op, false, Boolean, T>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace shmap::cuda
