// lax.pad, enqueued on a stream: an array with `interior[d]` padding items between neighbours along
// dim d, `low[d]` before and `high[d]` after. low and high may be negative and then cut. src and
// dst are row-major and contiguous.
#pragma once
#include <cstdint>

#include "cuda/kernels/operand.h"
#include "shmap/shape.h"

namespace shmap::cuda {

struct Pad {
  int rank = 0;
  std::int64_t extent[kMaxRank];  // of src
  std::int64_t low[kMaxRank], interior[kMaxRank];
  std::int64_t padded[kMaxRank];  // extents of dst, which imply `high`
  int itemsize = 0;               // 1, 2, 4 or 8
  const void* src = nullptr;
  Operand value;  // a scalar or a literal
  void* dst = nullptr;
};

void pad(const Pad& p, void* stream);

}  // namespace shmap::cuda
