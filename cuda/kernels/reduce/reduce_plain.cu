// The largest and the smallest element.
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/reduce/reduce_kernel.h"

namespace shmap::cuda {

bool reduce_plain(Reduction op, DType dtype, const ReduceCall& call) {
  return with_type(dtype, [&]<class T>() { reduce_row<Domain::plain, T>(op, dtype, call); });
}

}  // namespace shmap::cuda
