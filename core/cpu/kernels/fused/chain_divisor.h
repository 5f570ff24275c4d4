// ChainDivisor: the numbers by which a chain divides 32-bit integers by a constant. The quotient is
// the upper half of a product, shifted (Granlund and Montgomery, "Division by invariant integers
// using multiplication").
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace shmap::cpu {

// The constant comes first: the kernels of two operands read it at the same address.
struct ChainDivisor {
  std::uint32_t by;      // the constant's bits
  std::uint32_t factor;  // of the upper half
  // u32: two shifts. i32: a shift, and -1 where the constant is negative, else 0.
  std::int32_t first, second;

  // `by` is not 0.
  static constexpr ChainDivisor of_u32(std::uint32_t by) {
    const int bits = bits_below(by);
    const std::uint64_t rest = (std::uint64_t{1} << bits) - by;
    return {by, static_cast<std::uint32_t>((rest << 32) / by + 1), std::min(bits, 1),
            std::max(bits - 1, 0)};
  }
  static constexpr ChainDivisor of_i32(std::int32_t by) {
    const auto raw = static_cast<std::uint32_t>(by);
    const std::uint32_t size = by < 0 ? 0u - raw : raw;
    const int bits = std::max(bits_below(size), 1);
    const std::uint64_t factor = (std::uint64_t{1} << (31 + bits)) / size + 1;
    return {raw, static_cast<std::uint32_t>(factor), bits - 1, by < 0 ? -1 : 0};
  }

 private:
  // The least n with 2^n >= x.
  static constexpr int bits_below(std::uint32_t x) {
    return x <= 1 ? 0 : 32 - std::countl_zero(x - 1);
  }
};

}  // namespace shmap::cpu
