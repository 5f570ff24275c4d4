// The kernels of which sorts are built.
#pragma once
#include <cstdint>

#include "core/base/sorts.h"
#include "core/cpu/kernels/sort.h"

namespace shmap::cpu {

struct SortKernels {
  // Sorts lines [begin, end), or of each of them the items of range `part` of `parts`: these ranges
  // are of keys, about equally many items each, the same whoever computes them.
  void (*sort)(const SortPass& s, std::int64_t begin, std::int64_t end, int part,
               int parts) = nullptr;
  // The k largest of rows [begin, end).
  void (*top_k)(const TopK& t, std::int64_t begin, std::int64_t end) = nullptr;
};

}  // namespace shmap::cpu
