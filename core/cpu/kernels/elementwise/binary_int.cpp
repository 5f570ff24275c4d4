// Arithmetic of integers.
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "core/base/element_type.h"
#include "core/cpu/kernels/elementwise/binary_lookup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/binary_int.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/elementwise/map_binary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// Arithmetic that wraps is done in an unsigned type of at least int's width.
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
// Returns a / b for a b that is neither 0 nor -1. Types of up to 32 bits use floats, which have
// vector division: a quotient that is not an integer is further from every integer than the
// rounding error.
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

// Division of all elements by one number: multiplies by a factor that is computed once. The factor
// is the inverse for up to 32 bits, and a 128-bit product is used for 64 bits (Granlund and
// Montgomery, "Division by invariant integers using multiplication").
__extension__ typedef unsigned __int128 Uint128;
__extension__ typedef __int128 Int128;

// Divides numbers below 2^50 by b, which is neither 0 nor -1. A quotient that is not an integer is
// at least 2^-50 of its size below the next integer. The inverse is rounded up by less than that,
// but by enough that no integer quotient comes out too small.
template <class T>
class Inverse {
 public:
  explicit Inverse(T b) : inverse_(1.0 / static_cast<double>(b) * (1 + 0x1p-51)) {}
  T divide(T a) const {
    const double q = static_cast<double>(a) * inverse_;
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(q);
    else
      return static_cast<T>(static_cast<std::int64_t>(q));
  }

 private:
  double inverse_;
};

template <class T>
class Divisor;  // for 64-bit integers
inline int bits_below(std::uint64_t b) { return b <= 1 ? 0 : 64 - std::countl_zero(b - 1); }
template <>
class Divisor<std::uint64_t> {  // the divisor is not 0
 public:
  explicit Divisor(std::uint64_t b) {
    const int bits = bits_below(b);
    factor_ = static_cast<std::uint64_t>((((Uint128{1} << bits) - b) << 64) / b + 1);
    first_ = std::min(bits, 1);
    second_ = std::max(bits - 1, 0);
  }
  std::uint64_t divide(std::uint64_t a) const {
    const auto high = static_cast<std::uint64_t>(Uint128{factor_} * a >> 64);
    return (high + ((a - high) >> first_)) >> second_;
  }

 private:
  std::uint64_t factor_;
  int first_, second_;
};
template <>
class Divisor<std::int64_t> {  // the divisor is not 0
 public:
  explicit Divisor(std::int64_t b) : sign_(b < 0 ? ~std::uint64_t{0} : 0) {
    const std::uint64_t size = (static_cast<std::uint64_t>(b) ^ sign_) - sign_;
    const int bits = std::max(bits_below(size), 1);
    factor_ = static_cast<std::int64_t>(
        static_cast<std::uint64_t>((Uint128{1} << (63 + bits)) / size + 1));
    shift_ = bits - 1;
  }
  std::int64_t divide(std::int64_t a) const {
    const auto high = static_cast<std::uint64_t>(Int128{factor_} * a >> 64);
    const auto sum = static_cast<std::int64_t>(high + static_cast<std::uint64_t>(a));
    const std::uint64_t q = static_cast<std::uint64_t>(sum >> shift_) + (a < 0 ? 1u : 0u);
    return static_cast<std::int64_t>((q ^ sign_) - sign_);
  }

 private:
  std::uint64_t sign_;
  std::int64_t factor_;
  int shift_;
};

template <class T>
bool are_below_2_50(const T* x, std::int64_t n) {
  using U = std::make_unsigned_t<T>;
  U all = 0;
  for (std::int64_t i = 0; i < n; ++i)
    all |= static_cast<U>(std::is_signed_v<T> && x[i] < 0 ? ~x[i] : x[i]);
  return all < (U{1} << 50);
}

// Computes x[i] / by, or the remainder, for all i < n.
template <class Op, class D, class T>
void divide_all(const D& divisor, const T* x, T by, T* o, std::int64_t n) {
  SHMAP_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const T q = divisor.divide(x[i]);
    if constexpr (std::is_same_v<Op, Rem>)
      o[i] = static_cast<T>(static_cast<Wide<T>>(x[i]) -
                            static_cast<Wide<T>>(q) * static_cast<Wide<T>>(by));
    else
      o[i] = q;
  }
}

template <class Op, class T>
void map_division(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out,
                  std::int64_t n) {
  if constexpr (sizeof(T) >= 4) {
    const T by = b_scalar && n > 0 ? *static_cast<const T*>(b) : T{0};
    // Divisors 0 and -1, and few elements, take the path of the general case.
    if (!a_scalar && n > 8 && by != 0 && by != static_cast<T>(-1)) {
      const T* x = static_cast<const T*>(a);
      T* o = static_cast<T*>(out);
      if constexpr (sizeof(T) == 8) {
        constexpr std::int64_t kBlock = 512;  // elements that stay in the first-level cache
        const bool is_small = are_below_2_50(&by, 1);
        for (std::int64_t i = 0; i < n; i += kBlock) {
          const std::int64_t m = std::min(kBlock, n - i);
          if (is_small && are_below_2_50(x + i, m))
            divide_all<Op>(Inverse<T>(by), x + i, by, o + i, m);
          else
            divide_all<Op>(Divisor<T>(by), x + i, by, o + i, m);
        }
      } else {
        divide_all<Op>(Inverse<T>(by), x, by, o, n);
      }
      return;
    }
  }
  map_binary<Op, T>(a, a_scalar, b, b_scalar, out, n);
}

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
      return map_division<Div, T>;
    case BinaryOp::rem:
      return map_division<Rem, T>;
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
  if (dtype == DType::bool_)
    return op == BinaryOp::max || op == BinaryOp::min ? find<std::uint8_t>(op) : nullptr;
  return with_integer(dtype, [op]<class T>() { return find<T>(op); });
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
