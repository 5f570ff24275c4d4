// Attention, softmax(scale · q kᵀ + bias, masked) v, whose scores stay on the chip: keys and values
// are read block by block, with the greatest score and the sum of each row carried along (Dao et
// al., FlashAttention; Milakov and Gimelshein, Online normalizer calculation for softmax).
//
// Operands are [outer, inner, shared, rows, depth], as [batch, heads of k, heads of q that share
// one of k, sequence, features]: any strides but for the last dim, which lies together; k and v are
// the same along `shared`. Scores, exponentials and sums are f32; the exponentials of f16 and bf16
// are rounded to the dtype before they multiply v. The order in which a result is summed depends on
// the extents and dtypes alone. NaNs, infinities and rows in which nothing is left of the mask give
// what the operations one by one give: a NaN where that is one.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cuda {

struct AttentionOperand {
  const void* data = nullptr;
  std::int64_t outer = 0, inner = 0, row = 0;  // strides, in elements
  std::int64_t member = 0;                     // from one of `shared` to the next; of k and v 0
};

// One element for each score, or for several of them: a stride of 0 broadcasts.
struct ScoreOperand {
  const void* data = nullptr;  // null: there is none
  std::int64_t outer = 0, inner = 0, row = 0, column = 0, member = 0;
};

struct Attention {
  DType dtype = bf16;      // of q, k and v: f16, bf16, f32
  DType out_dtype = bf16;  // dtype, or f32
  DType bias_dtype = f32;  // dtype, or f32
  // Scores of columns beyond row + causal_offset are `masked` too, and where that is -infinity or
  // so small that its exponential vanishes, they are not computed.
  bool causal = false;
  int shared = 1;
  std::int64_t outer = 1, inner = 1;
  std::int64_t q_rows = 0, k_rows = 0;  // at least 1
  std::int64_t depth = 0, v_depth = 0;  // of q and k; of v and the result
  AttentionOperand q, k, v;
  void* out = nullptr;  // strides below
  std::int64_t out_outer = 0, out_inner = 0, out_row = 0, out_member = 0;
  // Unless it is null: of each head first the greatest score of each row, then of each row the sum
  // of exp(score - greatest). What the derivatives are computed from (attention_grad.h).
  float* sums = nullptr;
  std::int64_t sums_outer = 0, sums_inner = 0, sums_member = 0;  // strides
  float scale = 1;
  float masked = 0;   // may be -infinity
  ScoreOperand bias;  // is added to the scaled scores
  ScoreOperand mask;  // bools, a byte each: where false, the score is `masked` in place of all that
  std::int64_t causal_offset = 0;
  // attention_scratch() bytes of the GPU's memory, at a multiple of 16. Null where that says 0, and
  // where keys are not to be shared out though they might be, which sums them in another order.
  void* scratch = nullptr;
};

// Whether attention() takes these dtypes and extents. Looks at no address and no stride.
bool takes_attention(const Attention& attention);

// Bytes for `scratch`: where rows of q and heads are few, several blocks of threads share the keys
// of a row, and leave partial results there. Looks at dtypes and extents alone.
std::int64_t attention_scratch(const Attention& attention);

// Enqueues it on `native_stream`, a cudaStream_t of the current GPU. TypeError where
// takes_attention() says no.
void attention(const Attention& attention, void* native_stream);

}  // namespace shmap::cuda
