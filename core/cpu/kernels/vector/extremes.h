// The larger and the smaller of two numbers, as IEEE 754-2019 defines the maximum and the minimum:
// a NaN where an operand is one, and of zeros -0 is the smaller.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace shmap::cpu {

template <class T>
using FloatBits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// The two choices differ only where both numbers are zeros, of which one has a sign, or one is a
// NaN, which the sum then is too. All values are computed, and then chosen from, so that loops are
// vectorised.
template <class T>
inline T larger_of(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = FloatBits<T>;
    const T first = b > a ? b : a, second = a > b ? a : b;
    const T both = std::bit_cast<T>(std::bit_cast<Bits>(first) & std::bit_cast<Bits>(second));
    const T sum = a + b;
    return std::isunordered(a, b) ? sum : both;
  } else {
    return a > b ? a : b;
  }
}
template <class T>
inline T smaller_of(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = FloatBits<T>;
    const T first = b < a ? b : a, second = a < b ? a : b;
    const T either = std::bit_cast<T>(std::bit_cast<Bits>(first) | std::bit_cast<Bits>(second));
    const T sum = a + b;
    return std::isunordered(a, b) ? sum : either;
  } else {
    return a < b ? a : b;
  }
}

}  // namespace shmap::cpu
