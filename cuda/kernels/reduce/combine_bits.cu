// Bitwise "or" and "and".
#include "cuda/kernels/reduce/combine_tree.h"

namespace shmap::cuda {

bool combine_bits(Reduction op, DType dtype, const CombineCall& call) {
  if (!in_domain(dtype, Domain::bits)) return false;
  return with_bits(itemsize(dtype), [&]<class T>() { combine_row<Domain::bits, T>(op, call); });
}

}  // namespace shmap::cuda
