// attention as a loop over blocks of rows, each of which is computed again where it is
// differentiated: of operations, and so for every device, dtype and transform.
#pragma once
#include <cstdint>

#include "shmap/array.h"

namespace shmap {

struct AttentionSizes {
  std::int64_t batch, rows, heads, depth, columns, groups, v_depth;
  std::int64_t shared() const { return heads / groups; }  // heads of q that use one of k
};

// q: [batch, groups, shared, rows, depth]; k, v: [batch, groups, columns, features]; bias and mask:
// [batch, groups, shared, rows, columns] or 1 of each, or empty.
struct AttentionOperands {
  Array q, k, v, bias, mask;
};

// What a score that is masked becomes, of scores of that dtype.
double masked_score(DType dtype);

// [batch, groups, shared, rows, features of v]. causal: row t attends to columns 0 to t only.
Array attention_rows(const AttentionSizes& sizes, const AttentionOperands& operands, double scale,
                     bool causal, SourceLine source);

}  // namespace shmap
