// Stable sorting along one dim of arrays laid out as [outer, len, inner], and the k largest along
// the last dim, in the order of core/base/sorts.h. Descending order is also stable: equal items
// keep their order, and NaN comes first.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/sorts.h"

namespace shmap::cpu {

struct SortPayload {  // an array of the keys' extents that is permuted with them
  int itemsize = 0;
  const void* src = nullptr;
  void* dst = nullptr;
};

// One sort by one key.
struct SortPass {
  DType dtype = f32;                           // dtype of the keys
  std::int64_t outer = 0, len = 0, inner = 1;  // len < 2^31
  bool descending = false;
  const void* keys = nullptr;
  void* sorted = nullptr;                 // may be null, and may be keys
  std::int32_t* indices = nullptr;        // argsort: may be null
  std::span<const SortPayload> payloads;  // dst may be src
};

void sort(const SortPass& s);
// There may be more parts than lines, if lines are long: each part then sorts a range of the keys
// of every line. If an output is also an input, a part sorts whole lines or none.
int sort_parts(const SortPass& s, int workers);
void sort_part(const SortPass& s, int part, int parts);

void top_k(const TopK& t);
int top_k_parts(const TopK& t, int workers);
void top_k_part(const TopK& t, int part, int parts);

}  // namespace shmap::cpu
