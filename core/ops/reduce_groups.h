// The dims of a reduction in the form that kernels use.
#pragma once
#include <cstdint>

#include "shmap/shape.h"

namespace shmap {

// The dims as alternating runs of kept and reduced dims: kept[0], reduced[0], kept[1], …,
// kept[count]. Dims of extent 1 join any run.
struct ReduceGroups {
  static constexpr int kMost = kMaxRank / 2 + 1;
  int count = 0;
  std::int64_t kept[kMost] = {1};
  std::int64_t reduced[kMost] = {};

  ReduceGroups(const Shape& dims, const Dims& axes) {
    std::size_t next = 0;
    bool in_reduced = false;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const bool gone = next < axes.size() && axes[next] == static_cast<std::int64_t>(d);
      next += gone;
      if (dims[d] == 1) continue;
      if (gone && in_reduced) {
        reduced[count - 1] *= dims[d];
      } else if (gone) {
        reduced[count] = dims[d];
        kept[++count] = 1;
      } else {
        kept[count] *= dims[d];
      }
      in_reduced = gone;
    }
  }
};

}  // namespace shmap
