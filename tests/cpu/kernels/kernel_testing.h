// Code that the tests of the CPU kernels share: types by dtype, interesting values, distances in
// ulp.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/element_type.h"
#include "shmap/dtype.h"
#include "shmap/half.h"

namespace shmap::cpu::testing {

// Sizes around the vectors' own, and some longer than the kernels' blocks.
inline constexpr std::array<std::int64_t, 9> kSizes = {0, 1, 3, 15, 16, 17, 63, 1000, 1030};

inline constexpr std::array<DType, 13> kNumericDTypes = {
    DType::bool_, DType::i8,  DType::i16, DType::i32,  DType::i64, DType::u8, DType::u16,
    DType::u32,   DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64};

// Calls f.operator()<T>() with the element type of a numeric dtype.
template <class F>
void with_type(DType dtype, F f) {
  if (dtype == DType::prng_key) FAIL() << "no element type for " << to_string(dtype);
  with_plain(dtype, f);
}

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
inline constexpr bool kIsReal = std::is_floating_point_v<T> || kIsHalf<T>;

// The layout of a float type: digits of the mantissa with the hidden one, the exponent of the
// smallest subnormal, the largest finite value.
template <class T>
struct Real {
  static constexpr int digits = std::numeric_limits<T>::digits;
  static constexpr int lowest_exponent = std::numeric_limits<T>::min_exponent - digits;
  static constexpr long double max = std::numeric_limits<T>::max();
};
template <>
struct Real<float16> {
  static constexpr int digits = 11;
  static constexpr int lowest_exponent = -24;
  static constexpr long double max = 65504;
};
template <>
struct Real<bfloat16> {
  static constexpr int digits = 8;
  static constexpr int lowest_exponent = -133;
  static constexpr long double max = 0x1.fep127L;
};

template <class T>
long double to_real(T x) {
  if constexpr (kIsHalf<T>)
    return static_cast<float>(x);
  else
    return static_cast<long double>(x);
}

// The distance between a result and the exact value in units of the result type's last place;
// infinity where one is NaN or infinite (or a zero of the other sign) and the other is not.
template <class T>
double ulps(T got_value, long double want) {
  const long double got = to_real(got_value), far = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : far;
  int exponent;
  const long double unit_max = std::ldexp(1.0L, std::ilogb(Real<T>::max) - Real<T>::digits + 1);
  if (std::isinf(got)) {  // as good as the largest finite value and one unit
    if (std::signbit(got) != std::signbit(want)) return far;
    const long double beyond = Real<T>::max + unit_max - std::fabs(want);
    return beyond <= 0 ? 0 : static_cast<double>(beyond / unit_max);
  }
  if (std::isinf(want)) return far;
  if (want == 0 && got == 0) return std::signbit(want) == std::signbit(got) ? 0 : far;
  std::frexp(want, &exponent);
  const int unit = std::max(exponent - Real<T>::digits, Real<T>::lowest_exponent);
  return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, unit));
}

// Critical values, then random values: of all bit patterns, and of moderate size.
template <class T>
std::vector<T> values(std::int64_t n, unsigned seed) {
  std::mt19937_64 rng(seed);
  std::vector<T> result(static_cast<std::size_t>(n));
  std::vector<T> special;
  if constexpr (std::is_same_v<T, bool>) {
    special = {false, true};
  } else if constexpr (kIsReal<T>) {
    const long double tiny = std::ldexp(1.0L, Real<T>::lowest_exponent);
    const long double max = Real<T>::max, inf = std::numeric_limits<float>::infinity();
    for (const long double x : {0.0L, 1.0L, 0.5L, 1.5L, 2.5L, 0.3L, 3.0L, 100.0L, tiny, tiny * 5,
                                max, inf, 88.0L, 0.999L}) {
      if constexpr (std::is_same_v<T, double>) {
        special.push_back(static_cast<double>(x));
        special.push_back(static_cast<double>(-x));
      } else {
        special.push_back(static_cast<T>(static_cast<float>(x)));
        special.push_back(static_cast<T>(static_cast<float>(-x)));
      }
    }
    special.push_back(static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
  } else {
    for (const int x : {0, 1, 2, 3, 7, 8, 31, 32, 64, 100}) special.push_back(static_cast<T>(x));
    special.push_back(std::numeric_limits<T>::max());
    special.push_back(std::numeric_limits<T>::min());
    special.push_back(static_cast<T>(std::numeric_limits<T>::min() + 1));
    special.push_back(static_cast<T>(-1));
    special.push_back(static_cast<T>(-2));
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::uint64_t bits = rng();
    switch (rng() % 4) {
      case 0:
        result[i] = special[bits % special.size()];
        break;
      case 1: {
        if constexpr (std::is_same_v<T, bool>) {
          result[i] = bits & 1;
        } else {
          using Bits = std::conditional_t<
              sizeof(T) == 1, std::uint8_t,
              std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                 std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
          result[i] = std::bit_cast<T>(static_cast<Bits>(bits));
        }
        break;
      }
      default:
        if constexpr (std::is_same_v<T, double>)
          result[i] = (static_cast<double>(bits >> 11) * 0x1p-53 - 0.5) * 8;
        else if constexpr (kIsReal<T>)
          result[i] = static_cast<T>((static_cast<float>(bits >> 40) * 0x1p-24f - 0.5f) * 8);
        else
          result[i] = static_cast<T>(bits % 17);
    }
  }
  return result;
}

// std::vector<bool> has no bytes; the kernels' bools are bytes.
template <class T>
using Element = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
template <class T>
std::vector<Element<T>> elements(std::int64_t n, unsigned seed) {
  const auto v = values<T>(n, seed);
  return std::vector<Element<T>>(v.begin(), v.end());
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof(T)));
}

// Compares bits, but all NaNs are equal: compilers may swap the operands of an addition, which
// choose the NaN of its result.
template <class T>
bool same_bits_but_of_nans(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) {
    if constexpr (kIsReal<T>)
      if (std::isnan(to_real(x)) && std::isnan(to_real(y))) return true;
    return !std::memcmp(&x, &y, sizeof(T));
  });
}

}  // namespace shmap::cpu::testing
