// The larger and the smaller of two numbers, as IEEE 754-2019 defines the maximum and the minimum:
// a NaN where an operand is one, and of zeros -0 is the smaller.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace shmap::cpu {

template <class T>
using FloatBits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// Each function compares in both orders. The two choices differ only where the numbers are zeros,
// or where one is a NaN, and are then joined bit by bit: what has any of a NaN's bits is a NaN, and
// of the signs the smaller number has either, the larger one both. There is no branch, so that
// loops are vectorised.
template <class T>
inline T larger_of(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = FloatBits<T>;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
    const auto x = std::bit_cast<Bits>(b > a ? b : a), y = std::bit_cast<Bits>(a > b ? a : b);
    return std::bit_cast<T>((x & y) | ((x | y) & ~kSign));
  } else {
    return a > b ? a : b;
  }
}
template <class T>
inline T smaller_of(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = FloatBits<T>;
    const auto x = std::bit_cast<Bits>(b < a ? b : a), y = std::bit_cast<Bits>(a < b ? a : b);
    return std::bit_cast<T>(x | y);
  } else {
    return a < b ? a : b;
  }
}

}  // namespace shmap::cpu
