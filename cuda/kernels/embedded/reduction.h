// The arithmetic of reductions, shared by kernels, reducing collectives and fused programs. Also
// compiled as text at run time: includes only other headers of this folder.
#pragma once
#include "cuda/kernels/embedded/scalar.h"

namespace shmap::cuda {

// The rows of core/base/reduction_ops.h under their primitives' names: functions of two values of
// the type in which elements are computed. start() is the identity element of the operation, up to
// the sign of a zero.
struct reduce_sum {
  template <class T>
  SHMAP_FN T operator()(T a, T b) const {
    return scalar::add(a, b);
  }
  template <class T>
  static SHMAP_FN T start() {
    if constexpr (scalar::is_float<T>) return -T{0};
    return T{0};
  }
};
struct reduce_prod {
  template <class T>
  SHMAP_FN T operator()(T a, T b) const {
    return scalar::mul(a, b);
  }
  template <class T>
  static SHMAP_FN T start() {
    return T{1};
  }
};
struct reduce_max {
  template <class T>
  SHMAP_FN T operator()(T a, T b) const {
    return scalar::max(a, b);
  }
  template <class T>
  static SHMAP_FN T start() {
    if constexpr (scalar::is_float<T>)
      return static_cast<T>(scalar::float_of(0xff800000u));
    else
      return static_cast<T>(~scalar::integer_max<T>);
  }
};
struct reduce_min {
  template <class T>
  SHMAP_FN T operator()(T a, T b) const {
    return scalar::min(a, b);
  }
  template <class T>
  static SHMAP_FN T start() {
    if constexpr (scalar::is_float<T>)
      return static_cast<T>(scalar::float_of(0x7f800000u));
    else
      return scalar::integer_max<T>;
  }
};
struct reduce_and {
  template <class T>
  SHMAP_FN T operator()(T a, T b) const {
    return scalar::bit_and(a, b);
  }
  template <class T>
  static SHMAP_FN T start() {
    return static_cast<T>(~T{0});
  }
};
struct reduce_or {
  template <class T>
  SHMAP_FN T operator()(T a, T b) const {
    return scalar::bit_or(a, b);
  }
  template <class T>
  static SHMAP_FN T start() {
    return T{0};
  }
};

}  // namespace shmap::cuda
