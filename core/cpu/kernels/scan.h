// Cumulative operations, for one thread.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

enum class ScanOp : std::uint8_t {
  cumsum,  // integers (which wrap) and floats; f16, bf16 and f32 accumulate in f64
  cumprod,
  cummax,  // integers and floats, bool; NaN from the first NaN on
  cummin,
  cumlogsumexp,  // floats
};
inline constexpr int kScanOpCount = static_cast<int>(ScanOp::cumlogsumexp) + 1;

// in[outer, len, inner], row-major -> out of the same shape: running results along `len`, from its
// end where `reverse`. `out` may be `in`, and must not overlap it otherwise.
using ScanFn = void (*)(const void* in, void* out, std::int64_t outer, std::int64_t len,
                        std::int64_t inner, bool reverse);

// The kernel of `op` for `dtype`; nullptr where the dtype has no such op.
ScanFn scan_kernel(ScanOp op, DType dtype);

}  // namespace shmap::cpu
