// Descriptions of calls, which the kernels of both backends take: a sort along one dim, and the
// search for the k largest elements along the last dim. Arrays are row-major and contiguous.
//
// Order: -0 equals 0; every NaN comes after everything else and equals every other NaN; false
// before true. Always stable.
#pragma once
#include <cstdint>
#include <span>

#include "shmap/dtype.h"

namespace shmap {

struct SortOperand {
  DType dtype = f32;
  const void* in = nullptr;
  void* out = nullptr;
};

// All operands have the shape [outer, len, inner] and are sorted together along `len`; the first
// num_keys operands are the keys.
struct Sort {
  std::int64_t outer = 0, len = 0, inner = 1;  // len < 2^31
  int num_keys = 1;
  std::span<const SortOperand> operands;
};

// Finds the k largest elements of each of `outer` rows of `len`, largest first. Among equal
// elements the lower index comes first; NaN counts as largest. 0 <= k <= len < 2^31.
struct TopK {
  DType dtype = f32;
  std::int64_t outer = 0, len = 0, k = 0;
  const void* in = nullptr;
  void* values = nullptr;           // [outer, k]; may be null on the CPU
  std::int32_t* indices = nullptr;  // [outer, k]; may be null on the CPU
};

}  // namespace shmap
