// Sums and products.
#include "cuda/kernels/reduce/combine_tree.h"

namespace shmap::cuda {

bool combine_numbers(Reduction op, DType dtype, const CombineCall& call) {
  const auto run = [&]<class T>() { combine_row<Domain::numbers, T>(op, call); };
  if (is_integer(dtype)) return with_bits(itemsize(dtype), run);  // wraps: unsigned
  return with_float(dtype, run);
}

}  // namespace shmap::cuda
