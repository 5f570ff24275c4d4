// Attention, computed in blocks of rows, so that the scores of all rows are never in memory at
// once, neither in the forward nor in the backward pass.
#pragma once
#include <optional>
#include <utility>

#include "shmap/array.h"

namespace shmap {

struct AttentionOptions;

namespace detail {
Array attention(Operand q, Operand k, Operand v, const AttentionOptions& options);
}

struct AttentionOptions {
  Array bias = {};  // added to the scores; dims [b, n, t, s] or the last of these, each extent or 1
  Array mask = {};  // bool, dims as bias; scores are left out where the mask is false
  std::optional<double> scale = {};  // 1 / sqrt(h) by default
  bool is_causal = false;            // row t attends to columns 0 to t only
};

// softmax(scale · q kᵀ + bias, masked) v, as jax.nn.dot_product_attention. q is [b, t, n, h], k is
// [b, s, m, h], v is [b, s, m, d], or all three without b; the result is [b, t, n, d] with the
// dtype of v. With grouped queries n is a multiple of m, and the n / m consecutive heads of q that
// begin at head j · n / m use head j of k and v.
//
// Operands are floats, and are promoted to one dtype. Scores and their softmax are f32 (f64 for
// f64). A row whose scores are all masked gives the mean of v's rows. Whether a NaN in a masked row
// of k or v reaches the result is not defined. For f32, bf16 and f16 the result and its derivatives
// are computed in tiles (FlashAttention-2, Dao 2023). Blocks of rows, with softmax weights in the
// operands' dtype, are used for f64, for the derivative with respect to the bias, for second
// derivatives, and on GPUs for heads of more than 256 features. Memory beside operands and results
// grows with s, not with t · s; the backward pass computes the scores again.
//
// attention works eagerly, under jit, grad, jvp and vmap, and in bodies of shard_map, where each
// device uses its own blocks of the operands. attention does not wait for its result.
//
// Throws ValueError where ranks or extents do not fit, and TypeError where dtypes do not.
//
// Many models define an attention of their own. This one is a template so that an ordinary function
// attention(Operand, Operand, Operand) of a program is preferred to it, and not ambiguous with it.
template <class = void>
Array attention(Operand q, Operand k, Operand v, const AttentionOptions& options = {}) {
  return detail::attention(std::move(q), std::move(k), std::move(v), options);
}

}  // namespace shmap
