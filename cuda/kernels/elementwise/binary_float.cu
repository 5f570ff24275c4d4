// Arithmetic of two floats.
#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"

namespace shmap::cuda {
namespace {

#define SHMAP_FLOAT_OP(name, domain, ...) SHMAP_IF_FLOATS_##domain(SHMAP_BINARY_OP(name))
SHMAP_BINARY_OPS(SHMAP_FLOAT_OP)
#undef SHMAP_FLOAT_OP

template <class Op, bool heavy, class T>
void run_binary(Operand a, Operand b, void* out, std::int64_t n, void* stream) {
  map<Op, heavy, T, T, T>("binary", out, n, stream, a, b);
}

template <class T>
BinaryFn find(BinaryOp op) {
  switch (op) {
#define SHMAP_FLOAT_CASE(name, domain, work, derivative) \
  SHMAP_IF_FLOATS_##domain(case BinaryOp::name           \
                           : return run_binary<name##_op, Work::work == Work::heavy, T>;)
    SHMAP_BINARY_OPS(SHMAP_FLOAT_CASE)
#undef SHMAP_FLOAT_CASE
    default:
      return nullptr;
  }
}

}  // namespace

BinaryFn binary_float_kernel(BinaryOp op, DType dtype) {
  BinaryFn kernel = nullptr;
  return with_float(dtype, [&]<class T>() { kernel = find<T>(op); }) ? kernel : nullptr;
}

}  // namespace shmap::cuda
