// The arithmetic of one element: every elementwise primitive as a function of its name, over the
// types in which elements are computed (integers, float, double; a bool is computed as an unsigned
// char of 0 or 1), and the storage types of f16, bf16 and bool with their conversions. f16 and bf16
// are widened to float, computed and rounded once.
//
// Semantics are those of the CPU's kernels: integers wrap and never trap, shifts by the width or
// more give 0 or the sign, max and min give NaN where an operand is NaN and take -0 for less than
// 0, comparisons except `ne` are false where an operand is NaN, and a conversion of a float to an
// integer truncates and saturates, and gives 0 for NaN.
//
// This file compiles as C++20, as CUDA and, as text, at run time. At run time no header of the
// toolkit or the system exists: the file then includes none, and it uses no name of the standard
// library.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <math.h>
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SHMAP_FN __host__ __device__ __forceinline__
#else
#define SHMAP_FN inline
#endif

namespace shmap::cuda {

// Storage types: an element of f16, bf16 and bool.
struct F16 {
  unsigned short bits;
};
struct Bf16 {
  unsigned short bits;
};
struct Boolean {
  unsigned char value;  // 0 or 1
};

namespace scalar {

// clang-format off
template <class T> inline constexpr bool is_float = false;
template <> inline constexpr bool is_float<float> = true;
template <> inline constexpr bool is_float<double> = true;
template <class T> inline constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(0);

template <int bytes> struct UnsignedOfSize;
template <> struct UnsignedOfSize<1> { using type = unsigned char; };
template <> struct UnsignedOfSize<2> { using type = unsigned short; };
template <> struct UnsignedOfSize<4> { using type = unsigned int; };
template <> struct UnsignedOfSize<8> { using type = unsigned long; };
template <int bytes> struct SignedOfSize;
template <> struct SignedOfSize<1> { using type = signed char; };
template <> struct SignedOfSize<2> { using type = short; };
template <> struct SignedOfSize<4> { using type = int; };
template <> struct SignedOfSize<8> { using type = long; };
static_assert(sizeof(long) == 8 && sizeof(int) == 4);

// Unsigned, Signed: of the integer's own width. Wide: unsigned and at least as wide as int, the type
// in which arithmetic that wraps is computed.
template <class T> using Unsigned = typename UnsignedOfSize<sizeof(T)>::type;
template <class T> using Signed = typename SignedOfSize<sizeof(T)>::type;
template <class T> using Wide = typename UnsignedOfSize<sizeof(T) == 8 ? 8 : 4>::type;
template <class T> inline constexpr int bit_width = 8 * static_cast<int>(sizeof(T));
template <class T> inline constexpr T integer_max = is_signed<T>
    ? static_cast<T>(static_cast<Unsigned<T>>(~Unsigned<T>{0}) >> 1)
    : static_cast<T>(~Unsigned<T>{0});
// clang-format on

// --- bits of floats

SHMAP_FN unsigned int bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(unsigned int, x);
#endif
}
SHMAP_FN float float_of(unsigned int bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}
SHMAP_FN unsigned long bits_of(double x) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned long>(__double_as_longlong(x));
#else
  return __builtin_bit_cast(unsigned long, x);
#endif
}
SHMAP_FN double double_of(unsigned long bits) {
#if defined(__CUDA_ARCH__)
  return __longlong_as_double(static_cast<long long>(bits));
#else
  return __builtin_bit_cast(double, bits);
#endif
}

template <class T>
SHMAP_FN T float_with(Unsigned<T> bits) {
  if constexpr (sizeof(T) == 8)
    return double_of(bits);
  else
    return float_of(bits);
}

// --- the half types

SHMAP_FN float widen(Bf16 x) { return float_of(static_cast<unsigned int>(x.bits) << 16); }
SHMAP_FN float widen(F16 x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
#else
  const unsigned int sign = (x.bits & 0x8000u) << 16, abs = x.bits & 0x7fffu;
  if (abs >= 0x7c00u) return float_of(sign | 0x7f800000u | ((abs & 0x3ffu) << 13));
  if (abs >= 0x400u) return float_of(sign | ((abs << 13) + 0x38000000u));
  const float magnitude = static_cast<float>(abs) * 5.9604644775390625e-8f;  // subnormal: 2^-24
  return float_of(sign | bits_of(magnitude));
#endif
}

template <class To>
struct Narrow;  // rounds to a half type: to nearest, ties to even
template <>
struct Narrow<F16> {
  static SHMAP_FN F16 run(float x) {
#if defined(__CUDA_ARCH__)
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
#else
    const unsigned int f = bits_of(x), sign = (f >> 16) & 0x8000u, abs = f & 0x7fffffffu;
    unsigned int kept;
    if (abs > 0x7f800000u) {
      kept = 0x7e00u | ((abs >> 13) & 0x1ffu);
    } else if (abs >= 0x477ff000u) {  // rounds past 65504
      kept = 0x7c00u;
    } else if (abs < 0x38800000u) {  // subnormal: this addition rounds at 2^-24
      kept = bits_of(float_of(abs) + 0.5f) - bits_of(0.5f);
    } else {
      kept = (abs + 0xfffu + ((abs >> 13) & 1u) - 0x38000000u) >> 13;
    }
    return {static_cast<unsigned short>(sign | kept)};
#endif
  }
};
template <>
struct Narrow<Bf16> {
  static SHMAP_FN Bf16 run(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
#else
    const unsigned int f = bits_of(x);
    const unsigned int rounded = (f + 0x7fffu + ((f >> 16) & 1u)) >> 16;
    const bool nan = (f & 0x7fffffffu) > 0x7f800000u;
    return {static_cast<unsigned short>(nan ? (f >> 16) | 0x40u : rounded)};
#endif
  }
};

// widen() converts an element of a storage type to the type in which it is computed, and narrow()
// converts it back.
SHMAP_FN unsigned char widen(Boolean x) { return x.value; }
template <class T>
SHMAP_FN T widen(T x) {
  return x;
}
template <class T>
using Compute = decltype(widen(T{}));

template <class To>
SHMAP_FN To narrow(Compute<To> x) {
  if constexpr (sizeof(To) == 2 && is_float<Compute<To>>)
    return Narrow<To>::run(x);
  else
    return To{x};
}

// --- integer and float arithmetic

template <class T>
SHMAP_FN T neg(T x) {
  if constexpr (is_float<T>)
    return -x;
  else
    return static_cast<T>(Wide<T>{0} - static_cast<Wide<T>>(x));
}
template <class T>
SHMAP_FN T add(T a, T b) {
  if constexpr (is_float<T>)
    return a + b;
  else
    return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
}
template <class T>
SHMAP_FN T sub(T a, T b) {
  if constexpr (is_float<T>)
    return a - b;
  else
    return static_cast<T>(static_cast<Wide<T>>(a) - static_cast<Wide<T>>(b));
}
template <class T>
SHMAP_FN T mul(T a, T b) {
  if constexpr (is_float<T>)
    return a * b;
  else
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
}
template <class T>
SHMAP_FN T square(T x) {
  return mul(x, x);
}
// For integers, x / 0 is -1 (unsigned: all ones), and the lowest value / -1 is the lowest value.
template <class T>
SHMAP_FN T div(T a, T b) {
  if constexpr (is_float<T>) {
    return a / b;
  } else if constexpr (is_signed<T>) {
    const bool special = b == 0 || b == -1;
    const T plain = static_cast<T>(a / (special ? T{1} : b));
    return b == 0 ? T{-1} : b == -1 ? neg(a) : plain;
  } else {
    const T plain = static_cast<T>(a / (b == 0 ? T{1} : b));
    return b == 0 ? integer_max<T> : plain;
  }
}
// The result has the dividend's sign. For integers, rem(x, 0) is x.
template <class T>
SHMAP_FN T rem(T a, T b) {
  if constexpr (sizeof(T) == 8 && is_float<T>) {
    return ::fmod(a, b);
  } else if constexpr (is_float<T>) {
    return ::fmodf(a, b);
  } else {
    return b == 0 ? a : sub(a, mul(div(a, b), b));
  }
}
// For integers, x to a negative power is 0, except where x is 1 or -1.
template <class T>
SHMAP_FN T pow(T base, T exponent) {
  if constexpr (sizeof(T) == 8 && is_float<T>) {
    return ::pow(base, exponent);
  } else if constexpr (is_float<T>) {
    return ::powf(base, exponent);
  } else {
    if constexpr (is_signed<T>) {
      if (exponent < 0) return base == 1 ? T{1} : base != -1 ? T{0} : exponent % 2 ? T{-1} : T{1};
    }
    Wide<T> result = 1, power = static_cast<Wide<T>>(base);
    for (Unsigned<T> e = static_cast<Unsigned<T>>(exponent); e != 0;
         e = static_cast<Unsigned<T>>(e >> 1)) {
      if (e & 1) result *= power;
      power *= power;
    }
    return static_cast<T>(result);
  }
}
template <class T>
SHMAP_FN T abs(T x) {
  if constexpr (sizeof(T) == 8 && is_float<T>)
    return ::fabs(x);
  else if constexpr (is_float<T>)
    return ::fabsf(x);
  else if constexpr (is_signed<T>)
    return x < 0 ? neg(x) : x;
  else
    return x;
}
template <class T>
SHMAP_FN T sign(T x) {  // a float zero or NaN stays as it is
  if constexpr (is_float<T>)
    return x > 0 ? T{1} : x < 0 ? T{-1} : x;
  else if constexpr (is_signed<T>)
    return static_cast<T>((x > 0) - (x < 0));
  else
    return static_cast<T>(x > 0);
}
// Of two floats that are equal, only the signs may differ, and only of zeros. A NaN in b makes both
// comparisons with a false; a != a finds one in a.
template <class T>
SHMAP_FN T max(T a, T b) {
  const T larger = a > b ? a : b;
  if constexpr (is_float<T>)
    return a != a ? a : a == b ? float_with<T>(bits_of(a) & bits_of(b)) : larger;
  return larger;
}
template <class T>
SHMAP_FN T min(T a, T b) {
  const T smaller = a < b ? a : b;
  if constexpr (is_float<T>)
    return a != a ? a : a == b ? float_with<T>(bits_of(a) | bits_of(b)) : smaller;
  return smaller;
}
template <class T>
SHMAP_FN T clamp(T low, T x, T high) {  // `high` wins where low > high
  return min(max(low, x), high);
}

// --- bits; a bool has logical_not in place of not_

template <class T>
SHMAP_FN T not_(T x) {
  return static_cast<T>(~x);
}
template <class T>
SHMAP_FN T population_count(T x) {
  const Wide<T> bits = static_cast<Unsigned<T>>(x);
#if defined(__CUDA_ARCH__)
  return static_cast<T>(sizeof(T) == 8 ? __popcll(bits) : __popc(static_cast<unsigned int>(bits)));
#else
  return static_cast<T>(__builtin_popcountl(bits));
#endif
}
template <class T>
SHMAP_FN T clz(T x) {  // leading zeros; for 0 the width of T
  const Wide<T> bits = static_cast<Unsigned<T>>(x);
  constexpr int extra = 8 * static_cast<int>(sizeof(Wide<T>)) - bit_width<T>;
#if defined(__CUDA_ARCH__)
  const int zeros = sizeof(T) == 8 ? __clzll(static_cast<long long>(bits))
                                   : __clz(static_cast<int>(static_cast<unsigned int>(bits)));
  return static_cast<T>(zeros - extra);
#else
  if (bits == 0) return static_cast<T>(bit_width<T>);
  return static_cast<T>(sizeof(Wide<T>) == 8
                            ? __builtin_clzl(bits)
                            : __builtin_clz(static_cast<unsigned int>(bits)) - extra);
#endif
}
SHMAP_FN unsigned char logical_not(unsigned char x) { return x == 0; }
template <class T>
SHMAP_FN T bit_and(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
SHMAP_FN T bit_or(T a, T b) {
  return static_cast<T>(a | b);
}
template <class T>
SHMAP_FN T bit_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
// The amount b is read as unsigned, here and in the functions below.
template <class T>
SHMAP_FN T shift_left(T a, T b) {
  const Unsigned<T> amount = static_cast<Unsigned<T>>(b);
  if (amount >= bit_width<T>) return T{0};
  return static_cast<T>(static_cast<Wide<T>>(a) << amount);
}
template <class T>
SHMAP_FN T shift_right_logical(T a, T b) {
  const Unsigned<T> amount = static_cast<Unsigned<T>>(b);
  if (amount >= bit_width<T>) return T{0};
  return static_cast<T>(static_cast<Unsigned<T>>(a) >> amount);
}
template <class T>
SHMAP_FN T shift_right_arithmetic(T a, T b) {
  const Unsigned<T> amount = static_cast<Unsigned<T>>(b);
  return static_cast<T>(static_cast<Signed<T>>(a) >>
                        (amount < bit_width<T> ? amount : bit_width<T> - 1));
}

// --- functions of floats: special values are those of the C library

#define SHMAP_MATH(name, function)                          \
  SHMAP_FN float name(float x) { return ::function##f(x); } \
  SHMAP_FN double name(double x) { return ::function(x); }
SHMAP_MATH(floor, floor)
SHMAP_MATH(ceil, ceil)
SHMAP_MATH(round, rint)  // half to even
SHMAP_MATH(exp, exp)
SHMAP_MATH(exp2, exp2)
SHMAP_MATH(expm1, expm1)
SHMAP_MATH(log, log)
SHMAP_MATH(log1p, log1p)
SHMAP_MATH(sin, sin)
SHMAP_MATH(cos, cos)
SHMAP_MATH(tan, tan)
SHMAP_MATH(tanh, tanh)
SHMAP_MATH(asin, asin)
SHMAP_MATH(acos, acos)
SHMAP_MATH(atan, atan)
SHMAP_MATH(sinh, sinh)
SHMAP_MATH(cosh, cosh)
SHMAP_MATH(asinh, asinh)
SHMAP_MATH(acosh, acosh)
SHMAP_MATH(atanh, atanh)
SHMAP_MATH(sqrt, sqrt)
SHMAP_MATH(cbrt, cbrt)
SHMAP_MATH(erf, erf)
SHMAP_MATH(erfc, erfc)
#undef SHMAP_MATH

template <class T>
SHMAP_FN T rsqrt(T x) {  // both steps are rounded correctly, unlike the hardware's rsqrt
  return T{1} / sqrt(x);
}
template <class T>
SHMAP_FN T logistic(T x) {  // 1 / (1 + e^-x), or e^x / (1 + e^x): the exponential never overflows
  const T e = exp(-abs(x));
  return (x < 0 ? e : T{1}) / (T{1} + e);
}
SHMAP_FN float atan2(float a, float b) { return ::atan2f(a, b); }
SHMAP_FN double atan2(double a, double b) { return ::atan2(a, b); }

#if defined(__CUDA_ARCH__)
SHMAP_FN float erf_inv(float x) { return ::erfinvf(x); }
SHMAP_FN double erf_inv(double x) { return ::erfinv(x); }
#else
// Starts from an approximation with two correct digits, and improves it by steps of Halley's method
// for erf(y) = x or, in the tails, where erf has lost its digits, for erfc(y) = 1 - x.
SHMAP_FN double erf_inv(double x) {
  const double a = ::fabs(x);
  if (!(a < 1)) return a == 1 ? x * static_cast<double>(HUGE_VALF) : static_cast<double>(NAN);
  if (a < 1e-9) return x * 0.886226925452758013649;  // sqrt(pi) / 2: the cubic term is lost
  const double w = -::log((1 - a) * (1 + a));
  const double k = 4.3307467508;  // 2 / (0.147 pi): Winitzki's approximation
  double y = ::sqrt(::sqrt((k - w / 2) * (k - w / 2) + w / 0.147) - (k - w / 2));
  if (w < 1e-4) y = a * 0.886226925452758013649;
  for (int step = 0; step < 4; ++step) {
    const double error = a > 0.5 ? (1 - a) - ::erfc(y) : ::erf(y) - a;
    const double slope = 1.12837916709551257390 * ::exp(-y * y);  // 2 / sqrt(pi) e^(-y^2)
    const double newton = error / slope;
    y -= newton / (1 + y * newton);
  }
  return x < 0 ? -y : y;
}
SHMAP_FN float erf_inv(float x) { return static_cast<float>(erf_inv(static_cast<double>(x))); }
#endif

// --- predicates and comparisons

SHMAP_FN bool is_finite(float x) { return (bits_of(x) & 0x7f800000u) != 0x7f800000u; }
SHMAP_FN bool is_finite(double x) {
  return (bits_of(x) & 0x7ff0000000000000ul) != 0x7ff0000000000000ul;
}
template <class T>
SHMAP_FN bool eq(T a, T b) {
  return a == b;
}
template <class T>
SHMAP_FN bool ne(T a, T b) {
  return a != b;
}
template <class T>
SHMAP_FN bool lt(T a, T b) {
  return a < b;
}
template <class T>
SHMAP_FN bool le(T a, T b) {
  return a <= b;
}
template <class T>
SHMAP_FN bool gt(T a, T b) {
  return a > b;
}
template <class T>
SHMAP_FN bool ge(T a, T b) {
  return a >= b;
}
template <class T>
SHMAP_FN T select_n(unsigned char pred, T on_false, T on_true) {  // in the primitive's order
  return pred != 0 ? on_true : on_false;
}

// --- conversions, from the type in which a dtype is computed to a storage type

template <class To, class F>
SHMAP_FN To saturated(F x) {
  constexpr F upper = F{2} * static_cast<F>(To{1} << (bit_width<To> - (is_signed<To> ? 2 : 1)));
  constexpr F lower = is_signed<To> ? -upper : F{0};
  if (x >= upper) return integer_max<To>;
  F inside = x < upper ? x : F{0};  // NaN too
  inside = inside > lower ? inside : lower;
  return static_cast<To>(inside);
}

// Converts to float and rounds to odd: the last bit of an inexact result is 1. If the result is
// then rounded to a half type, to nearest, its bits are those of a single rounding of x.
SHMAP_FN float odd_float(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  const unsigned int away = ::fabs(back) > ::fabs(x) ? 1 : 0;
  const unsigned int inexact = back < x || back > x ? 1 : 0;
  return float_of((bits_of(nearest) - away) | inexact);
}

template <class To, class From>
struct Cast {
  static SHMAP_FN To run(From x) {
    if constexpr (is_float<From> && !is_float<To>)
      return saturated<To>(x);
    else
      return static_cast<To>(x);
  }
};
template <class From>
struct Cast<Boolean, From> {
  static SHMAP_FN Boolean run(From x) { return {static_cast<unsigned char>(x != From{0})}; }
};
template <class From>
struct Cast<F16, From> {
  static SHMAP_FN F16 run(From x) {
    if constexpr (is_float<From> && sizeof(From) == 8)
      return Narrow<F16>::run(odd_float(x));
    else
      return Narrow<F16>::run(static_cast<float>(x));
  }
};
template <class From>
struct Cast<Bf16, From> {
  static SHMAP_FN Bf16 run(From x) {
    if constexpr (is_float<From> && sizeof(From) == 8)
      return Narrow<Bf16>::run(odd_float(x));
    else
      return Narrow<Bf16>::run(static_cast<float>(x));
  }
};
template <class To, class From>
SHMAP_FN To cast(From x) {
  return Cast<To, From>::run(x);
}

}  // namespace scalar
}  // namespace shmap::cuda
