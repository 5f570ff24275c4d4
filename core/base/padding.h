// lax.pad as the kernels of both backends take it: `interior[d]` padding items between neighbours
// along dim d, `low[d]` before them, and what `padded[d]` leaves after them. low may be negative
// and then cuts, and so may the end. The arrays are row-major and contiguous.
#pragma once
#include <cstdint>

#include "shmap/shape.h"

namespace shmap {

struct Padding {
  int rank = 0;
  std::int64_t extent[kMaxRank];  // of the array
  std::int64_t low[kMaxRank], interior[kMaxRank];
  std::int64_t padded[kMaxRank];  // extents of the result
  int itemsize = 0;
};

}  // namespace shmap
