#include "cuda/kernels/combine_tree.h"

namespace shmap::cuda {
namespace {

SHMAP_FOLD_OP(add)
SHMAP_FOLD_OP(mul)

template <class T>
void run(Reduction op, const CombineCall& call) {
  if (op == Reduction::sum)
    run_combine<add_op, T>(call);
  else
    run_combine<mul_op, T>(call);
}

}  // namespace

bool combine_sum_or_prod(Reduction op, DType dtype, const CombineCall& call) {
  if (is_integer(dtype))  // what wraps needs no sign
    return with_bits(itemsize(dtype), [&]<class T>() { run<T>(op, call); });
  return with_float(dtype, [&]<class T>() { run<T>(op, call); });
}

}  // namespace shmap::cuda
