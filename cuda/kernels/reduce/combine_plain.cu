// The larger and the smaller element.
#include "cuda/kernels/reduce/combine_tree.h"

namespace shmap::cuda {

bool combine_plain(Reduction op, DType dtype, const CombineCall& call) {
  const auto run = [&]<class T>() { combine_row<Domain::plain, T>(op, call); };
  if (dtype == DType::bool_) return run.template operator()<std::uint8_t>(), true;
  return with_number(dtype, run);
}

}  // namespace shmap::cuda
