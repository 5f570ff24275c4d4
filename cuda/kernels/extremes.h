// Larger and smaller values as operations of reductions and scans. For the .cu files.
#pragma once
#include "cuda/kernels/scalar.h"

namespace shmap::cuda {
namespace {

// Small integers in 32 bits, for the exchange among threads.
template <class C>
struct ExtremeAccumulator {
  using type = C;
};
template <>
struct ExtremeAccumulator<unsigned char> {
  using type = unsigned;
};
template <>
struct ExtremeAccumulator<unsigned short> {
  using type = unsigned;
};
template <>
struct ExtremeAccumulator<signed char> {
  using type = int;
};
template <>
struct ExtremeAccumulator<short> {
  using type = int;
};

// The value that loses against every other.
template <bool largest, class A>
SHMAP_FN A least_extreme() {
  if constexpr (scalar::is_float<A>)
    return largest ? -static_cast<A>(HUGE_VAL) : static_cast<A>(HUGE_VAL);
  else if constexpr (largest)
    return scalar::is_signed<A> ? static_cast<A>(-scalar::integer_max<A> - 1) : A{0};
  else
    return scalar::integer_max<A>;
}

template <bool largest>
struct Extreme {  // NaN where either is
  template <class T>
  using Acc = typename ExtremeAccumulator<scalar::Compute<T>>::type;
  template <class A>
  static SHMAP_FN A neutral() {
    return least_extreme<largest, A>();
  }
  template <class A>
  static SHMAP_FN A run(A a, A b) {
    if constexpr (largest)
      return scalar::max(a, b);
    else
      return scalar::min(a, b);
  }
};

}  // namespace
}  // namespace shmap::cuda
