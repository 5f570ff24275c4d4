// The elementwise operations of one operand that are arithmetic or act on bits, for integers, bool,
// f32 and f64, and neg and abs for f16 and bf16. Transcendental functions are in unary_math-inl.h.
#include <bit>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/base/float_format.h"
#include "core/cpu/kernels/elementwise/unary_lookup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/unary_arith.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

template <class Op, class T, class R = T>
void map(const void* in, void* out, std::int64_t n) {
  const T* a = static_cast<const T*>(in);
  R* o = static_cast<R*>(out);
  SHMAP_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) o[i] = Op::template run<T>(a[i]);
}

// The unsigned type in which integers are negated and multiplied, so that results wrap around. At
// least as wide as int, to which C++ would promote narrower ones, and whose overflow is undefined.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Neg {
  template <class T>
  static T run(T x) {
    if constexpr (std::floating_point<T>)
      return -x;
    else
      return static_cast<T>(Wide<T>{0} - static_cast<Wide<T>>(x));
  }
};
struct Abs {
  template <class T>
  static T run(T x) {
    if constexpr (std::floating_point<T>)
      return std::fabs(x);
    else
      return x < 0 ? Neg::run(x) : x;
  }
};
struct Sign {
  template <class T>
  static T run(T x) {
    if constexpr (std::floating_point<T>) {
      const T one = std::copysign(T{1}, x);
      return x > 0 || x < 0 ? one : x;
    } else {
      return static_cast<T>((x > 0) - (x < 0));
    }
  }
};
#if SHMAP_VECTORS  // the instruction set has an instruction for each of these
struct Floor {
  template <class T>
  static T run(T x) {
    return std::floor(x);
  }
};
struct Ceil {
  template <class T>
  static T run(T x) {
    return std::ceil(x);
  }
};
struct Round {
  template <class T>
  static T run(T x) {
    return std::rint(x);  // to even: the rounding mode that processes start with
  }
};
#else
// Numbers of the size of 2^(digits - 1) are 1 apart. Adding that number therefore rounds x to even,
// with additions alone.
template <class T>
T round_to_even(T x) {
  const T big = std::copysign(T{1} / std::numeric_limits<T>::epsilon(), x);
  return (x + big) - big;
}
// Returns x if it is so large that it has no fraction (or is infinite or NaN); otherwise the
// rounded value, with the sign of x if that is 0.
template <class T>
T where_fraction(T x, T rounded) {
  return std::fabs(x) < T{1} / std::numeric_limits<T>::epsilon() ? std::copysign(rounded, x) : x;
}
struct Floor {
  template <class T>
  static T run(T x) {
    const T near = round_to_even(x);
    return where_fraction(x, near - (near > x ? T{1} : T{0}));
  }
};
struct Ceil {
  template <class T>
  static T run(T x) {
    const T near = round_to_even(x);
    return where_fraction(x, near + (near < x ? T{1} : T{0}));
  }
};
struct Round {
  template <class T>
  static T run(T x) {
    return where_fraction(x, round_to_even(x));
  }
};
#endif
struct Square {
  template <class T>
  static T run(T x) {
    if constexpr (std::floating_point<T>)
      return x * x;
    else
      return static_cast<T>(static_cast<Wide<T>>(x) * static_cast<Wide<T>>(x));
  }
};
struct Not {
  template <class T>
  static T run(T x) {
    return static_cast<T>(~x);
  }
};
struct LogicalNot {
  template <class T>
  static T run(T x) {
    return x == 0;
  }
};
struct PopulationCount {
  template <class T>
  static T run(T x) {
    return static_cast<T>(std::popcount(x));
  }
};
struct CountLeadingZeros {
  template <class T>
  static T run(T x) {
    return static_cast<T>(std::countl_zero(x));
  }
};
struct IsFinite {
  template <class T>
  static std::uint8_t run(T x) {
    return std::fabs(x) <= std::numeric_limits<T>::max();
  }
};
struct NegHalf {  // a half type, given by its bits
  template <class T>
  static T run(T x) {
    return static_cast<T>(x ^ 0x8000u);
  }
};
struct AbsHalf {
  template <class T>
  static T run(T x) {
    return static_cast<T>(x & 0x7fffu);
  }
};
struct Copy {
  template <class T>
  static T run(T x) {
    return x;
  }
};

template <class T>
UnaryFn find_integer(UnaryOp op) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case UnaryOp::neg:
      return map<Neg, U>;
    case UnaryOp::abs:
      if constexpr (std::is_signed_v<T>) return map<Abs, T>;
      return map<Copy, U>;
    case UnaryOp::sign:
      return map<Sign, T>;
    case UnaryOp::square:
      return map<Square, U>;
    case UnaryOp::not_:
      return map<Not, U>;
    case UnaryOp::population_count:
      return map<PopulationCount, U>;
    case UnaryOp::clz:
      return map<CountLeadingZeros, U>;
    default:
      return nullptr;
  }
}

template <class T>
UnaryFn find_float(UnaryOp op) {
  switch (op) {
    case UnaryOp::neg:
      return map<Neg, T>;
    case UnaryOp::abs:
      return map<Abs, T>;
    case UnaryOp::sign:
      return map<Sign, T>;
    case UnaryOp::floor:
      return map<Floor, T>;
    case UnaryOp::ceil:
      return map<Ceil, T>;
    case UnaryOp::round:
      return map<Round, T>;
    case UnaryOp::square:
      return map<Square, T>;
    case UnaryOp::is_finite:
      return map<IsFinite, T, std::uint8_t>;
    default:
      return nullptr;
  }
}

UnaryFn find_unary_arith(UnaryOp op, DType dtype) {
  if (is_half(dtype)) {
    return op == UnaryOp::neg   ? map<NegHalf, std::uint16_t>
           : op == UnaryOp::abs ? map<AbsHalf, std::uint16_t>
                                : nullptr;
  }
  if (dtype == DType::bool_) return op == UnaryOp::not_ ? map<LogicalNot, std::uint8_t> : nullptr;
  return with_native(dtype, [op]<class T>() -> UnaryFn {
    if constexpr (std::is_integral_v<T>)
      return find_integer<T>(op);
    else
      return find_float<T>(op);
  });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_unary_arith);
UnaryFn unary_arith_kernel(UnaryOp op, DType dtype) {
  return SHMAP_BEST(find_unary_arith)(op, dtype);
}
}  // namespace shmap::cpu
#endif
