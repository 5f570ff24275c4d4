// Arithmetic of f32 and f64.
#include <cmath>

#include "core/cpu/kernels/elementwise/binary_lookup.h"
#include "core/cpu/kernels/vector/extremes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/binary_float.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/elementwise/map_binary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

struct Add {
  template <class T>
  static T run(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T run(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T run(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <class T>
  static T run(T a, T b) {
    return a / b;
  }
};
struct Max {
  template <class T>
  static T run(T a, T b) {
    return larger_of(a, b);
  }
};
struct Min {
  template <class T>
  static T run(T a, T b) {
    return smaller_of(a, b);
  }
};
struct Rem {
  template <class T>
  static T run(T a, T b) {
    return std::fmod(a, b);
  }
};

template <class T>
BinaryFn find(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return map_binary<Add, T>;
    case BinaryOp::sub:
      return map_binary<Sub, T>;
    case BinaryOp::mul:
      return map_binary<Mul, T>;
    case BinaryOp::div:
      return map_binary<Div, T>;
    case BinaryOp::rem:
      return map_binary<Rem, T>;
    case BinaryOp::max:
      return map_binary<Max, T>;
    case BinaryOp::min:
      return map_binary<Min, T>;
    default:
      return nullptr;
  }
}

BinaryFn find_binary_float(BinaryOp op, DType dtype) {
  if (dtype == DType::f32) return find<float>(op);
  if (dtype == DType::f64) return find<double>(op);
  return nullptr;
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_binary_float);
BinaryFn binary_float_kernel(BinaryOp op, DType dtype) {
  return SHMAP_BEST(find_binary_float)(op, dtype);
}
}  // namespace shmap::cpu
#endif
