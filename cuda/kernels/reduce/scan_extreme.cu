// Cumulative maxima and minima.
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/reduce/reducer.h"
#include "cuda/kernels/reduce/scan_kernel.h"

namespace shmap::cuda {

// with_type has a kernel for each dtype of this domain.
static_assert(domain_of(Cumulative::cummax) == Domain::plain);
static_assert(domain_of(Cumulative::cummin) == Domain::plain);

bool run_cummax(const Scan& s, const ScanPlan& plan, void* scratch, void* stream) {
  return with_type(s.dtype, [&]<class T>() {
    scan_type<Reducer<reduce_max>, T>(plan, s.in, s.out, scratch, stream);
  });
}

bool run_cummin(const Scan& s, const ScanPlan& plan, void* scratch, void* stream) {
  return with_type(s.dtype, [&]<class T>() {
    scan_type<Reducer<reduce_min>, T>(plan, s.in, s.out, scratch, stream);
  });
}

}  // namespace shmap::cuda
