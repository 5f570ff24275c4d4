// The kernels of which sorts are built.
#pragma once
#include <cstdint>

#include "core/base/sorts.h"
#include "core/cpu/kernels/sort.h"

namespace shmap::cpu {

struct SortKernels {
  // Sorts lines [begin, end), or only the items in range `part` of `parts` of each line. The ranges
  // divide the keys of a line so that each has about as many items; every thread computes the same
  // ranges.
  void (*sort)(const SortPass& s, std::int64_t begin, std::int64_t end, int part,
               int parts) = nullptr;
  // The k largest of rows [begin, end).
  void (*top_k)(const TopK& t, std::int64_t begin, std::int64_t end) = nullptr;
};

}  // namespace shmap::cpu
