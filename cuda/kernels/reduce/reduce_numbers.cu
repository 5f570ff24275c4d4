// Sums and products.
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/reduce/reduce_kernel.h"

namespace shmap::cuda {

bool reduce_numbers(Reduction op, DType dtype, const ReduceCall& call) {
  const auto run = [&]<class T>() { reduce_row<Domain::numbers, T>(op, dtype, call); };
  if (is_integer(dtype)) return with_bits(itemsize(dtype), run);  // wraps: unsigned
  return with_float(dtype, run);
}

}  // namespace shmap::cuda
