// lax.pad in the form that the kernels of both backends take: `interior[d]` padding items between
// neighbours along dim d, `low[d]` before them, and the rest of `padded[d]` after them. A negative
// low cuts items off, and so does a `padded` that is too small. The arrays are row-major and
// contiguous.
#pragma once
#include <cstdint>

#include "shmap/shape.h"

namespace shmap {

struct Padding {
  int rank = 0;
  std::int64_t extent[kMaxRank];  // extents of the array
  std::int64_t low[kMaxRank], interior[kMaxRank];
  std::int64_t padded[kMaxRank];  // extents of the result
  int itemsize = 0;
};

}  // namespace shmap
