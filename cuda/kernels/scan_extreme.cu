// Cumulative maxima and minima.
#include "cuda/kernels/dispatch.h"
#include "cuda/kernels/reducer.h"
#include "cuda/kernels/scan_kernel.h"

namespace shmap::cuda {

bool scan_extremes(const Scan& s, const ScanPlan& plan, void* scratch, void* stream) {
  return with_type(s.dtype, [&]<class T>() {
    if (s.op == Cumulative::cummax)
      scan_type<Reducer<reduce_max>, T>(plan, s.in, s.out, scratch, stream);
    else
      scan_type<Reducer<reduce_min>, T>(plan, s.in, s.out, scratch, stream);
  });
}

}  // namespace shmap::cuda
