// Bitwise "or" and "and".
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/reduce/reduce_kernel.h"

namespace shmap::cuda {

bool reduce_bits(Reduction op, DType dtype, const ReduceCall& call) {
  if (!in_domain(dtype, Domain::bits)) return false;
  return with_bits(itemsize(dtype),
                   [&]<class T>() { reduce_row<Domain::bits, T>(op, dtype, call); });
}

}  // namespace shmap::cuda
