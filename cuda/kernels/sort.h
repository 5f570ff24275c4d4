// Sorting along one dim of arrays laid out as [outer, len, inner], and the k largest along the last
// dim, on a GPU.
//
// Order: -0 equals 0; every NaN comes after everything else and equals every other NaN; false
// before true. Always stable.
#pragma once
#include <cstdint>
#include <span>

#include "shmap/dtype.h"

namespace shmap::cuda {

struct SortOperand {
  DType dtype = DType::f32;
  const void* in = nullptr;
  void* out = nullptr;  // not `in`
};

// All operands have these extents, and are sorted together by the first num_keys of them.
struct Sort {
  std::int64_t outer = 0, len = 0, inner = 1;  // len < 2^31
  int num_keys = 1;
  std::span<const SortOperand> operands;
};

// Bytes of scratch; does not depend on addresses. TypeError where a key's dtype has no order,
// ValueError where the dim is too long.
std::int64_t sort_scratch(const Sort& s);
// `stream` is a cudaStream_t here and below.
void sort(const Sort& s, void* scratch, void* stream);

// The k largest of each of `outer` rows of `len`, largest first; of equal ones the lower index
// first; NaN counts as largest. 0 <= k <= len < 2^31.
struct TopK {
  DType dtype = DType::f32;
  std::int64_t outer = 0, len = 0, k = 0;
  const void* in = nullptr;
  void* values = nullptr;           // [outer, k]
  std::int32_t* indices = nullptr;  // [outer, k]
};
std::int64_t top_k_scratch(const TopK& t);
void top_k(const TopK& t, void* scratch, void* stream);

}  // namespace shmap::cuda
