// The extent of lax.pad's result along a dim, for tests of the kernels.
#pragma once
#include <algorithm>
#include <cstdint>

namespace shmap::testing {

inline std::int64_t padded_extent(std::int64_t extent, std::int64_t low, std::int64_t high,
                                  std::int64_t interior) {
  const std::int64_t spread = extent > 0 ? extent + (extent - 1) * interior : 0;
  return std::max<std::int64_t>(0, spread + low + high);
}

}  // namespace shmap::testing
