// Elements as unsigned integers in the order of sort.h. For the .cu files.
#pragma once
#include <cstdint>

#include "core/base/float_format.h"
#include "cuda/kernels/embedded/scalar.h"
#include "shmap/dtype.h"

namespace shmap::cuda {
namespace {

// The conversion from the bits of a dtype to a key.
struct KeyRule {
  enum Kind : std::uint64_t { as_is, flip_sign, floating } kind = as_is;
  std::uint64_t infinity = 0;  // bits of infinity; 0 for integers

  explicit KeyRule(DType t) {
    if (is_signed_int(t)) kind = flip_sign;
    if (!is_floating(t)) return;
    kind = floating;
    infinity = infinity_bits(t);
  }

  // -0 equals 0; NaNs are equal and last.
  template <class Bits>
  SHMAP_FN Bits key(Bits bits) const {
    constexpr Bits top = static_cast<Bits>(Bits{1} << (scalar::bit_width<Bits> - 1));
    if (kind == as_is) return bits;
    if (kind == flip_sign) return static_cast<Bits>(bits ^ top);
    const Bits magnitude = static_cast<Bits>(bits & static_cast<Bits>(top - 1));
    if (magnitude > infinity) return static_cast<Bits>(~Bits{0});
    if (magnitude == 0) return top;
    return static_cast<Bits>((bits & top) != 0 ? ~bits : bits | top);
  }
};

// Keys of up to 32 bits are sorted as u32.
template <class Bits>
struct WideKey {
  using type = std::uint32_t;
};
template <>
struct WideKey<std::uint64_t> {
  using type = std::uint64_t;
};

}  // namespace
}  // namespace shmap::cuda
