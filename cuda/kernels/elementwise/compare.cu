// Comparisons of two elements of any dtype; the results are bools.
#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"

namespace shmap::cuda {
namespace {

SHMAP_COMPARE_OP(eq)
SHMAP_COMPARE_OP(ne)
SHMAP_COMPARE_OP(lt)
SHMAP_COMPARE_OP(le)

template <class Op, class T>
void run_compare(Operand a, Operand b, void* out, std::int64_t n, void* stream) {
  map<Op, false, Boolean, T, T>("compare", out, n, stream, a, b);
}
template <class Op, class T>
void run_swapped(Operand a, Operand b, void* out, std::int64_t n, void* stream) {
  run_compare<Op, T>(b, a, out, n, stream);
}

template <class T>
BinaryFn find(CompareOp op) {
  switch (op) {
    case CompareOp::eq:
      return run_compare<eq_op, T>;
    case CompareOp::ne:
      return run_compare<ne_op, T>;
    case CompareOp::lt:
      return run_compare<lt_op, T>;
    case CompareOp::le:
      return run_compare<le_op, T>;
    case CompareOp::gt:
      return run_swapped<lt_op, T>;
    case CompareOp::ge:
      return run_swapped<le_op, T>;
    default:
      return nullptr;
  }
}

}  // namespace

BinaryFn compare_kernel(CompareOp op, DType dtype) {
  if (dtype == DType::bool_) return find<std::uint8_t>(op);
  BinaryFn kernel = nullptr;
  return with_number(dtype, [&]<class T>() { kernel = find<T>(op); }) ? kernel : nullptr;
}

}  // namespace shmap::cuda
