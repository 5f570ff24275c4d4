// Stable sorting along one dim of arrays laid out as [outer, len, inner], row-major and contiguous,
// and the k largest along the last dim.
//
// Order: -0 equals 0; every NaN comes after everything else and equals every other NaN; false
// before true. Descending order is also stable: equal items keep their order, and NaN comes first.
#pragma once
#include <cstdint>
#include <span>

#include "shmap/dtype.h"

namespace shmap::cpu {

struct SortPayload {  // an array of the keys' extents that is permuted with them
  int itemsize = 0;
  const void* src = nullptr;
  void* dst = nullptr;
};

struct Sort {
  DType dtype = f32;                           // of the keys
  std::int64_t outer = 0, len = 0, inner = 1;  // len < 2^31
  bool descending = false;
  const void* keys = nullptr;
  void* sorted = nullptr;                 // may be null, and may be keys
  std::int32_t* indices = nullptr;        // argsort: may be null
  std::span<const SortPayload> payloads;  // dst may be src
};

void sort(const Sort& s);
int sort_parts(const Sort& s, int workers);
void sort_part(const Sort& s, int part, int parts);

// The k largest of each of `outer` rows of `len`, largest first; of equal ones the lower index
// first; NaN counts as largest. 0 <= k <= len < 2^31.
struct TopK {
  DType dtype = f32;
  std::int64_t outer = 0, len = 0, k = 0;
  const void* src = nullptr;
  void* values = nullptr;           // [outer, k]; may be null
  std::int32_t* indices = nullptr;  // [outer, k]; may be null
};

void top_k(const TopK& t);
int top_k_parts(const TopK& t, int workers);
void top_k_part(const TopK& t, int part, int parts);

}  // namespace shmap::cpu
