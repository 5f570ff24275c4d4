// Bitwise operations of integers and bools, and shifts of integers.
#include <limits>
#include <type_traits>

#include "core/base/word_type.h"
#include "core/cpu/kernels/elementwise/binary_lookup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/binary_bits.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/elementwise/map_binary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

struct And {
  template <class T>
  static T run(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T run(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T run(T a, T b) {
    return a ^ b;
  }
};

// Shift amounts beyond the width are replaced before the shift, which would otherwise be undefined.
// T is unsigned here.
template <class T>
inline constexpr T kWidth = std::numeric_limits<T>::digits;
struct ShiftLeft {
  template <class T>
  static T run(T a, T b) {
    const T shifted = static_cast<T>(a << (b & (kWidth<T> - 1)));
    return b < kWidth<T> ? shifted : T{0};
  }
};
struct ShiftRightLogical {
  template <class T>
  static T run(T a, T b) {
    const T shifted = static_cast<T>(a >> (b & (kWidth<T> - 1)));
    return b < kWidth<T> ? shifted : T{0};
  }
};
struct ShiftRightArithmetic {
  template <class T>
  static T run(T a, T b) {
    const T amount = b < kWidth<T> ? b : static_cast<T>(kWidth<T> - 1);
    return static_cast<T>(static_cast<std::make_signed_t<T>>(a) >> amount);
  }
};

template <class U>
BinaryFn find(BinaryOp op) {
  switch (op) {
    case BinaryOp::bit_and:
      return map_binary<And, U>;
    case BinaryOp::bit_or:
      return map_binary<Or, U>;
    case BinaryOp::bit_xor:
      return map_binary<Xor, U>;
    case BinaryOp::shift_left:
      return map_binary<ShiftLeft, U>;
    case BinaryOp::shift_right_logical:
      return map_binary<ShiftRightLogical, U>;
    case BinaryOp::shift_right_arithmetic:
      return map_binary<ShiftRightArithmetic, U>;
    default:
      return nullptr;
  }
}

BinaryFn find_binary_bits(BinaryOp op, DType dtype) {
  if (dtype == DType::bool_ && op != BinaryOp::bit_and && op != BinaryOp::bit_or &&
      op != BinaryOp::bit_xor)
    return nullptr;
  if (dtype != DType::bool_ && !is_integer(dtype)) return nullptr;
  return with_word(itemsize(dtype), [op]<class U>() { return find<U>(op); });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_binary_bits);
BinaryFn binary_bits_kernel(BinaryOp op, DType dtype) {
  return SHMAP_BEST(find_binary_bits)(op, dtype);
}
}  // namespace shmap::cpu
#endif
