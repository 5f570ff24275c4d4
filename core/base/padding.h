// Padding: a call of pad (jax.lax.pad) in the form that the kernels of both backends take. Along
// dim d, interior[d] padding elements are put between neighbouring elements, low[d] before the
// first element, and the rest of padded[d] after the last one. A negative low[d] removes elements
// at the start of the dim, and a padded[d] that is too small removes elements at its end. The
// arrays are row-major and contiguous.
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
