// Runs kernels of f32 on the half types, in blocks that stay in the first-level cache.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

inline constexpr std::int64_t kHalfBlock = 512;  // elements

// Runs a kernel of two f32 operands on operands of `half`; `narrow` casts its results, or is
// nullptr where they are bools.
inline void run_half_binary(BinaryFn kernel, DType half, CastFn narrow, const void* a,
                            bool a_scalar, const void* b, bool b_scalar, void* out,
                            std::int64_t n) {
  const CastFn widen = cast_kernel(half, DType::f32);
  const auto* x = static_cast<const std::uint16_t*>(a);
  const auto* y = static_cast<const std::uint16_t*>(b);
  alignas(64) float x_block[kHalfBlock], y_block[kHalfBlock];
  if (n <= 0) return;
  if (a_scalar) widen(x, x_block, 1);
  if (b_scalar) widen(y, y_block, 1);
  alignas(64) float result[kHalfBlock];
  for (std::int64_t i = 0; i < n; i += kHalfBlock) {
    const std::int64_t m = std::min(kHalfBlock, n - i);
    if (!a_scalar) widen(x + i, x_block, m);
    if (!b_scalar) widen(y + i, y_block, m);
    if (narrow) {
      kernel(x_block, a_scalar, y_block, b_scalar, result, m);
      narrow(result, static_cast<std::uint16_t*>(out) + i, m);
    } else {
      kernel(x_block, a_scalar, y_block, b_scalar, static_cast<std::uint8_t*>(out) + i, m);
    }
  }
}

}  // namespace shmap::cpu
