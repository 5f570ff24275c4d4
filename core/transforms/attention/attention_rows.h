// attention as a loop over blocks of rows, whose derivative computes each block again. It consists
// of operations, and therefore works on every device, for every dtype and under every transform.
#pragma once
#include <cstdint>

#include "shmap/array.h"

namespace shmap {

struct AttentionSizes {
  std::int64_t batch, rows, heads, depth, columns, groups, v_depth;
  std::int64_t shared() const { return heads / groups; }  // the heads of q that use one head of k
};

// q: [batch, groups, shared, rows, depth]; k, v: [batch, groups, columns, features]; bias and mask:
// empty, or [batch, groups, shared, rows, columns] with extents of 1 where they broadcast.
struct AttentionOperands {
  Array q, k, v, bias, mask;
};

// The value of a masked score of that dtype.
double masked_score(DType dtype);

// Returns [batch, groups, shared, rows, features of v]. causal: row t attends to columns 0 to t
// only.
Array attention_rows(const AttentionSizes& sizes, const AttentionOperands& operands, double scale,
                     bool causal, SourceLine source);

}  // namespace shmap
