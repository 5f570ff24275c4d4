// Elementwise choice.
#include "cuda/kernels/elementwise/elementwise.h"
#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"

namespace shmap::cuda {
namespace {

struct select_op {
  template <class T>
  static __device__ __forceinline__ T run(Boolean pred, T on_false, T on_true) {
    return scalar::select_n(pred.value, on_false, on_true);
  }
};

struct clamp_op {
  template <class T>
  static __device__ __forceinline__ T run(T low, T x, T high) {
    return scalar::narrow<T>(
        scalar::clamp(scalar::widen(low), scalar::widen(x), scalar::widen(high)));
  }
};

}  // namespace

void select(Operand pred, Operand on_false, Operand on_true, void* out, int itemsize,
            std::int64_t n, void* stream) {
  const bool known = with_bits(itemsize, [&]<class T>() {
    map<select_op, false, T, Boolean, T, T>("select_n", out, n, stream, pred, on_false, on_true);
  });
  check_launched("select_n", known);
}

void clamp(DType dtype, Operand low, Operand x, Operand high, void* out, std::int64_t n,
           void* stream) {
  const bool known = with_type(dtype, [&]<class T>() {
    map<clamp_op, false, T, T, T, T>("clamp", out, n, stream, low, x, high);
  });
  check_launched("clamp", known);
}

}  // namespace shmap::cuda
