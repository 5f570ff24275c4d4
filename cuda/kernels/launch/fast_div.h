// Division by a number that is known before the kernel runs, as a multiplication. For the .cu
// files.
#pragma once
#include <cstdint>

#include "cuda/kernels/embedded/scalar.h"

namespace shmap::cuda {

// 32-bit numbers below 2^31, with a divisor of 1 to 2^31 - 1; for 64-bit numbers a plain division.
template <class Index>
class FastDiv {
 public:
  FastDiv() = default;
  explicit FastDiv(std::int64_t divisor) : divisor_(static_cast<Index>(divisor)) {
    if constexpr (sizeof(Index) == 4) {
      while ((std::uint64_t{1} << shift_) < static_cast<std::uint64_t>(divisor)) ++shift_;
      const std::uint64_t beyond =
          (std::uint64_t{1} << shift_) - static_cast<std::uint64_t>(divisor);
      factor_ =
          static_cast<std::uint32_t>((beyond << 32) / static_cast<std::uint64_t>(divisor) + 1);
    }
  }
  SHMAP_FN Index divide(Index n) const {
    if constexpr (sizeof(Index) == 4) {
#if defined(__CUDA_ARCH__)
      return (__umulhi(n, factor_) + n) >> shift_;
#else
      return (static_cast<std::uint32_t>((std::uint64_t{n} * factor_) >> 32) + n) >> shift_;
#endif
    } else {
      return n / divisor_;
    }
  }
  // Divides n in place, and returns the remainder.
  SHMAP_FN Index split(Index& n) const {
    const Index quotient = divide(n), rest = n - quotient * divisor_;
    n = quotient;
    return rest;
  }

 private:
  Index divisor_ = 1;
  std::uint32_t factor_ = 1, shift_ = 0;
};

}  // namespace shmap::cuda
