// Sums and products.
#include "cuda/kernels/dispatch.h"
#include "cuda/kernels/reduce_kernel.h"
#include "cuda/kernels/reduce_parts.h"

namespace shmap::cuda {
namespace {

// Integers in an unsigned type of at least 32 bits: what wraps there wraps in fewer bits as well.
template <class T, bool floating = scalar::is_float<scalar::Compute<T>>>
struct Accumulator {
  using type = scalar::Wide<scalar::Compute<T>>;
};
template <class T>
struct Accumulator<T, true> {
  using type = scalar::Compute<T>;
};

struct Sum {
  template <class T>
  using Acc = typename Accumulator<T>::type;
  template <class A>
  static SHMAP_FN A neutral() {
    return static_cast<A>(-0.0f);  // a sum of negative zeros alone is one
  }
  template <class A>
  static SHMAP_FN A run(A a, A b) {
    return a + b;
  }
};
struct Prod {
  template <class T>
  using Acc = typename Accumulator<T>::type;
  template <class A>
  static SHMAP_FN A neutral() {
    return A{1};
  }
  template <class A>
  static SHMAP_FN A run(A a, A b) {
    return a * b;
  }
};

// Integers by their width alone.
template <class F>
bool with_summed(DType dtype, F&& f) {
  if (is_integer(dtype)) return with_bits(itemsize(dtype), f);
  return with_float(dtype, f);
}

}  // namespace

bool reduce_numbers(Reduction op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
                    void* scratch, void* stream) {
  return with_summed(dtype, [&]<class T>() {
    using C = scalar::Compute<T>;
    if (op == Reduction::sum)
      reduce_type<Sum>(runs, in, out, scratch, scalar::narrow<T>(C{0}), stream);
    else
      reduce_type<Prod>(runs, in, out, scratch, scalar::narrow<T>(C{1}), stream);
  });
}

}  // namespace shmap::cuda
