#include "cuda/kernels/combine_tree.h"

namespace shmap::cuda {
namespace {

SHMAP_FOLD_OP(max)
SHMAP_FOLD_OP(min)

template <class T>
void run(Reduction op, const CombineCall& call) {
  if (op == Reduction::max)
    run_combine<max_op, T>(call);
  else
    run_combine<min_op, T>(call);
}

}  // namespace

bool combine_max_or_min(Reduction op, DType dtype, const CombineCall& call) {
  if (dtype == DType::bool_) return run<std::uint8_t>(op, call), true;
  return with_number(dtype, [&]<class T>() { run<T>(op, call); });
}

}  // namespace shmap::cuda
