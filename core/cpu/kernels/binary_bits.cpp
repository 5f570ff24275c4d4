// Bitwise operations and shifts of integers; nextafter of floats, which works on their bits.
#include <limits>
#include <type_traits>

#include "core/cpu/kernels/binary_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/binary_bits.cpp"
#include "core/cpu/kernels/targets-inl.h"
//
#include "core/cpu/kernels/map_binary-inl.h"

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

// Amounts beyond the width are replaced before the shift, which they would make undefined. Here T
// is unsigned.
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

// The neighbour of a float, given by its bits, in the direction of another. The bits but the sign's
// count up with the magnitude, also from a subnormal to a normal number and to infinity.
template <class T, T infinity, T nan>
struct NextAfter {
  static T run(T a, T b) {
    constexpr T sign = static_cast<T>(T{1} << (kWidth<T> - 1));
    const T a_abs = a & static_cast<T>(~sign), b_abs = b & static_cast<T>(~sign);
    const bool away = ((a ^ b) & sign) == 0 && a_abs < b_abs;
    const T step = static_cast<T>(away ? a + 1 : a - 1);
    const T from_zero = static_cast<T>((b & sign) | 1);
    const T moved = a_abs == 0 ? from_zero : step;
    const bool equal = a == b || (a_abs | b_abs) == 0;
    const T result = equal ? b : moved;
    return a_abs > infinity || b_abs > infinity ? nan : result;
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
  if (is_floating(dtype)) {
    if (op != BinaryOp::nextafter) return nullptr;
    if (dtype == DType::f16)
      return map_binary<NextAfter<std::uint16_t, 0x7c00, 0x7e00>, std::uint16_t>;
    if (dtype == DType::bf16)
      return map_binary<NextAfter<std::uint16_t, 0x7f80, 0x7fc0>, std::uint16_t>;
    if (dtype == DType::f32)
      return map_binary<NextAfter<std::uint32_t, 0x7f800000, 0x7fc00000>, std::uint32_t>;
    return map_binary<NextAfter<std::uint64_t, 0x7ff0000000000000, 0x7ff8000000000000>,
                      std::uint64_t>;
  }
  if (dtype == DType::bool_ && op != BinaryOp::bit_and && op != BinaryOp::bit_or &&
      op != BinaryOp::bit_xor)
    return nullptr;
  if (dtype != DType::bool_ && !is_integer(dtype)) return nullptr;
  switch (itemsize(dtype)) {
    case 1:
      return find<std::uint8_t>(op);
    case 2:
      return find<std::uint16_t>(op);
    case 4:
      return find<std::uint32_t>(op);
    default:
      return find<std::uint64_t>(op);
  }
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
