// The functions that a product may end with. For the .cu files.
#pragma once
#include "core/base/activation.h"
#include "cuda/kernels/embedded/scalar.h"

namespace shmap::cuda {

// gelu in its tanh form, as in cuBLASLt. A NaN passes through relu.
template <class T>
SHMAP_FN T activated(T x, Activation function) {
  if (function == Activation::relu) return scalar::max(x, T(0));
  if (function != Activation::gelu) return x;
  const T inner = T(0.79788456080286535588) * (x + T(0.044715) * (x * x * x));
  return T(0.5) * x * (T(1) + scalar::tanh(inner));
}

}  // namespace shmap::cuda
