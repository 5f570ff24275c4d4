// lax.pad: an array with `interior[d]` padding items between neighbours along dim d, `low[d]`
// before and `high[d]` after. low and high may be negative and then cut. src and dst are row-major
// and contiguous; dst has padded_extent(...) along each dim.
#pragma once
#include <cstdint>

#include "shmap/shape.h"

namespace shmap::cpu {

struct Pad {
  int rank = 0;
  std::int64_t extent[kMaxRank];  // of src
  std::int64_t low[kMaxRank], high[kMaxRank], interior[kMaxRank];
  int itemsize = 0;
  const void* src = nullptr;
  const void* value = nullptr;  // one item
  void* dst = nullptr;
};

// extent + its interior padding + low + high; at least 0.
std::int64_t padded_extent(std::int64_t extent, std::int64_t low, std::int64_t high,
                           std::int64_t interior);

void pad(const Pad& p);
int pad_parts(const Pad& p, int workers);
void pad_part(const Pad& p, int part, int parts);

}  // namespace shmap::cpu
