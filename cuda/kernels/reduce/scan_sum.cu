// Cumulative sums and products, and sums of exponentials.
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/reduce/scan_kernel.h"

namespace shmap::cuda {
namespace {

// Floats accumulate in f64; integers in an unsigned type of at least 32 bits.
template <class T, bool floating = scalar::is_float<scalar::Compute<T>>>
struct ScanAccumulator {
  using type = scalar::Wide<scalar::Compute<T>>;
};
template <class T>
struct ScanAccumulator<T, true> {
  using type = double;
};

struct CumulativeSum {
  template <class T>
  using Acc = typename ScanAccumulator<T>::type;
  template <class A>
  static SHMAP_FN A run(A a, A b) {
    return a + b;
  }
};
struct CumulativeProduct {
  template <class T>
  using Acc = typename ScanAccumulator<T>::type;
  template <class A>
  static SHMAP_FN A run(A a, A b) {
    return a * b;
  }
};
struct CumulativeLogSumExp {
  template <class T>
  using Acc = double;
  static SHMAP_FN double run(double a, double b) {
    if (a == b) return a + 0.693147180559945309417;  // also correct for two infinities
    const double larger = scalar::max(a, b);
    if (larger - larger != 0) return larger;  // infinite or NaN
    return larger + scalar::log1p(scalar::exp(-scalar::abs(a - b)));
  }
};

template <class Op, Cumulative op>
bool run_numbers(const Scan& s, const ScanPlan& plan, void* scratch, void* stream) {
  static_assert(domain_of(op) == Domain::numbers,
                "there is a kernel for each dtype of this domain");
  const auto run = [&]<class T>() { scan_type<Op, T>(plan, s.in, s.out, scratch, stream); };
  return is_integer(s.dtype) ? with_bits(itemsize(s.dtype), run) : with_float(s.dtype, run);
}

}  // namespace

bool run_cumsum(const Scan& s, const ScanPlan& plan, void* scratch, void* stream) {
  return run_numbers<CumulativeSum, Cumulative::cumsum>(s, plan, scratch, stream);
}

bool run_cumprod(const Scan& s, const ScanPlan& plan, void* scratch, void* stream) {
  return run_numbers<CumulativeProduct, Cumulative::cumprod>(s, plan, scratch, stream);
}

bool run_cumlogsumexp(const Scan& s, const ScanPlan& plan, void* scratch, void* stream) {
  static_assert(domain_of(Cumulative::cumlogsumexp) == Domain::floats);
  return with_float(s.dtype, [&]<class T>() {
    scan_type<CumulativeLogSumExp, T>(plan, s.in, s.out, scratch, stream);
  });
}

}  // namespace shmap::cuda
