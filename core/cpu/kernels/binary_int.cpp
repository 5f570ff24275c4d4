// Arithmetic of integers.
#include <limits>
#include <type_traits>

#include "core/cpu/kernels/binary_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/binary_int.cpp"
#include "core/cpu/kernels/targets-inl.h"
//
#include "core/cpu/kernels/map_binary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// What wraps is computed in an unsigned type of at least int's width.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Add {
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(Wide<T>{a} + Wide<T>{b});
  }
};
struct Sub {
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(Wide<T>{a} - Wide<T>{b});
  }
};
struct Mul {
  template <class T>
  static T run(T a, T b) {
    return static_cast<T>(Wide<T>{a} * Wide<T>{b});
  }
};
struct Max {
  template <class T>
  static T run(T a, T b) {
    return a > b ? a : b;
  }
};
struct Min {
  template <class T>
  static T run(T a, T b) {
    return a < b ? a : b;
  }
};

template <class T>
T negated(T a) {
  return static_cast<T>(Wide<T>{0} - static_cast<Wide<T>>(a));
}
// a / b for a b that is neither 0 nor -1. Up to 32 bits through floats, which have vector division:
// a quotient that is no integer is further from one than the rounding error.
template <class T>
T plain_quotient(T a, T b) {
  if constexpr (sizeof(T) <= 2)
    return static_cast<T>(static_cast<std::int32_t>(static_cast<float>(a) / static_cast<float>(b)));
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return static_cast<T>(static_cast<double>(a) / static_cast<double>(b));
  else if constexpr (sizeof(T) == 4)
    return static_cast<T>(
        static_cast<std::int64_t>(static_cast<double>(a) / static_cast<double>(b)));
  else
    return a / b;
}
template <class T>
T quotient(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    const bool special = b == 0 || b == -1;
    const T plain = plain_quotient(a, special ? T{1} : b);
    return b == 0 ? T{-1} : b == -1 ? negated(a) : plain;
  } else {
    const T plain = plain_quotient(a, b == 0 ? T{1} : b);
    return b == 0 ? std::numeric_limits<T>::max() : plain;
  }
}
struct Div {
  template <class T>
  static T run(T a, T b) {
    return quotient(a, b);
  }
};
struct Rem {
  template <class T>
  static T run(T a, T b) {
    const Wide<T> product = static_cast<Wide<T>>(quotient(a, b)) * static_cast<Wide<T>>(b);
    const T rest = static_cast<T>(static_cast<Wide<T>>(a) - product);
    return b == 0 ? a : rest;
  }
};
struct Pow {
  template <class T>
  static T run(T base, T exponent) {
    if constexpr (std::is_signed_v<T>) {
      if (exponent < 0) return base == 1 ? T{1} : base != -1 ? T{0} : exponent % 2 ? T{-1} : T{1};
    }
    Wide<T> result = 1, square = static_cast<Wide<T>>(base);
    for (auto e = static_cast<std::make_unsigned_t<T>>(exponent); e; e = e >> 1) {
      if (e & 1) result *= square;
      square *= square;
    }
    return static_cast<T>(result);
  }
};

template <class T>
BinaryFn find(BinaryOp op) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case BinaryOp::add:
      return map_binary<Add, U>;
    case BinaryOp::sub:
      return map_binary<Sub, U>;
    case BinaryOp::mul:
      return map_binary<Mul, U>;
    case BinaryOp::div:
      return map_binary<Div, T>;
    case BinaryOp::rem:
      return map_binary<Rem, T>;
    case BinaryOp::pow:
      return map_binary<Pow, T>;
    case BinaryOp::max:
      return map_binary<Max, T>;
    case BinaryOp::min:
      return map_binary<Min, T>;
    default:
      return nullptr;
  }
}

BinaryFn find_binary_int(BinaryOp op, DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return op == BinaryOp::max || op == BinaryOp::min ? find<std::uint8_t>(op) : nullptr;
    case DType::i8:
      return find<std::int8_t>(op);
    case DType::i16:
      return find<std::int16_t>(op);
    case DType::i32:
      return find<std::int32_t>(op);
    case DType::i64:
      return find<std::int64_t>(op);
    case DType::u8:
      return find<std::uint8_t>(op);
    case DType::u16:
      return find<std::uint16_t>(op);
    case DType::u32:
      return find<std::uint32_t>(op);
    case DType::u64:
      return find<std::uint64_t>(op);
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_binary_int);
BinaryFn binary_int_kernel(BinaryOp op, DType dtype) {
  return SHMAP_BEST(find_binary_int)(op, dtype);
}
}  // namespace shmap::cpu
#endif
