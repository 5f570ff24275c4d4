// Attention, in blocks of rows: the scores of all rows are never held at once, forward or backward.
#pragma once
#include <optional>

#include "shmap/array.h"

namespace shmap {

struct AttentionOptions {
  Array bias = {};  // added to the scores; dims [b, n, t, s] or fewer, each of that extent or 1
  Array mask = {};  // bool, likewise: where it is false a score does not count
  std::optional<double> scale = {};  // 1 / sqrt(h) where it is not given
  bool is_causal = false;            // row t sees the columns 0 to t
};

// softmax(scale · q kᵀ + bias, masked) v, as jax.nn.dot_product_attention has it. q is [b, t, n,
// h], k is [b, s, m, h], v is [b, s, m, d], or all without b; the result is [b, t, n, d] of v's
// dtype. Grouped queries: n is a multiple of m, and heads j · n / m and on use head j of k and v.
//
// Operands are floats, promoted to one dtype; scores and their softmax are f32 (f64 for f64), and
// weights are rounded to the operands' dtype before they are multiplied with v. A row all of whose
// scores are masked gives the mean of v's rows.
//
// Rows of q are taken in blocks, one after another: memory beside operands and results grows with
// s, not with t · s. The backward pass computes the scores of a block again. Eagerly, under jit,
// grad, jvp and vmap, and in bodies of shard_map, on each device's own operands. Nothing waits.
//
// Errors: ValueError where ranks or extents do not fit; TypeError for dtypes.
Array attention(Operand q, Operand k, Operand v, const AttentionOptions& options = {});

}  // namespace shmap
