// Bitwise or and and.
#include "cuda/kernels/dispatch.h"
#include "cuda/kernels/reduce_kernel.h"
#include "cuda/kernels/reduce_parts.h"

namespace shmap::cuda {
namespace {

struct Any {
  template <class T>
  using Acc = scalar::Wide<T>;
  template <class A>
  static SHMAP_FN A neutral() {
    return A{0};
  }
  template <class A>
  static SHMAP_FN A run(A a, A b) {
    return a | b;
  }
};
struct All {
  template <class T>
  using Acc = scalar::Wide<T>;
  template <class A>
  static SHMAP_FN A neutral() {
    return static_cast<A>(~A{0});
  }
  template <class A>
  static SHMAP_FN A run(A a, A b) {
    return a & b;
  }
};

}  // namespace

bool reduce_bits(Reduction op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
                 void* scratch, void* stream) {
  if (dtype != DType::bool_ && !is_integer(dtype)) return false;
  return with_bits(itemsize(dtype), [&]<class T>() {
    const T ones = dtype == DType::bool_ ? T{1} : static_cast<T>(~T{0});
    if (op == Reduction::any)
      reduce_type<Any>(runs, in, out, scratch, T{0}, stream);
    else
      reduce_type<All>(runs, in, out, scratch, ones, stream);
  });
}

}  // namespace shmap::cuda
