#include "cuda/kernels/combine_tree.h"

namespace shmap::cuda {
namespace {

SHMAP_FOLD_OP(bit_or)
SHMAP_FOLD_OP(bit_and)

}  // namespace

bool combine_any_or_all(Reduction op, DType dtype, const CombineCall& call) {
  if (dtype != DType::bool_ && !is_integer(dtype)) return false;
  return with_bits(itemsize(dtype), [&]<class T>() {
    if (op == Reduction::any)
      run_combine<bit_or_op, T>(call);
    else
      run_combine<bit_and_op, T>(call);
  });
}

}  // namespace shmap::cuda
