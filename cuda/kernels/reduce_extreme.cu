// The largest and the smallest element.
#include "cuda/kernels/dispatch.h"
#include "cuda/kernels/extremes.h"
#include "cuda/kernels/reduce_kernel.h"
#include "cuda/kernels/reduce_parts.h"

namespace shmap::cuda {

bool reduce_extremes(Reduction op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
                     void* scratch, void* stream) {
  return with_type(dtype, [&]<class T>() {
    using C = scalar::Compute<T>;
    const bool largest = op == Reduction::max;
    C identity = largest ? least_extreme<true, C>() : least_extreme<false, C>();
    if (dtype == DType::bool_) identity = largest ? C{0} : C{1};
    if (largest)
      reduce_type<Extreme<true>>(runs, in, out, scratch, scalar::narrow<T>(identity), stream);
    else
      reduce_type<Extreme<false>>(runs, in, out, scratch, scalar::narrow<T>(identity), stream);
  });
}

}  // namespace shmap::cuda
