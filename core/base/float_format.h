// The binary formats of the floating dtypes: a sign, an exponent, and a mantissa whose leading 1 is
// not stored. All functions compute from the size of the dtype and the number of mantissa bits in
// its row of core/base/dtype_table.h.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>

#include "core/base/dtype_table.h"

namespace shmap {

// The floats of 16 bits, with which processors do not compute in their stored form.
constexpr bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }

// The functions below are for floating dtypes only.
constexpr int mantissa_bits(DType t) {
#define SHMAP_CASE(name, type, jaxpr, numpy, npy, safetensors, mantissa) \
  case DType::name:                                                      \
    return mantissa;
  switch (t) {
    SHMAP_FLOAT_DTYPES(SHMAP_CASE)
    default:
      return 0;
  }
#undef SHMAP_CASE
}
constexpr int exponent_bits(DType t) { return 8 * itemsize(t) - 1 - mantissa_bits(t); }
// The number that the format adds to an exponent before it stores the exponent.
constexpr int exponent_bias(DType t) { return (1 << (exponent_bits(t) - 1)) - 1; }

// The bit patterns of 1 and of infinity. The bit pattern of a NaN without its sign bit is greater
// than that of infinity.
constexpr std::uint64_t one_bits(DType t) {
  return static_cast<std::uint64_t>(exponent_bias(t)) << mantissa_bits(t);
}
constexpr std::uint64_t infinity_bits(DType t) {
  return ((std::uint64_t{1} << exponent_bits(t)) - 1) << mantissa_bits(t);
}

namespace detail {
constexpr double power_of_two(int n) {  // -1022 <= n <= 1023
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + n) << 52);
}
}  // namespace detail

// The smallest normal number, and the distance from the largest number below 1 to 1.
constexpr double smallest_normal(DType t) { return detail::power_of_two(1 - exponent_bias(t)); }
constexpr double step_below_one(DType t) { return detail::power_of_two(-mantissa_bits(t) - 1); }

static_assert(mantissa_bits(DType::f32) + 1 == std::numeric_limits<float>::digits &&
              mantissa_bits(DType::f64) + 1 == std::numeric_limits<double>::digits);

}  // namespace shmap
