// Attention, softmax(scale · q kᵀ + bias, masked) v, whose scores never reach global memory: keys
// and values are read block by block, and each row keeps its greatest score and its sum so far (Dao
// et al., FlashAttention; Milakov and Gimelshein, Online normalizer calculation for softmax).
//
// Operands are [outer, inner, shared, rows, depth]: [batch, heads of k, heads of q that share one
// head of k, sequence, features]. Strides are arbitrary, except that the last dim is contiguous; k
// and v are the same along `shared`. Scores, exponentials and sums are f32; the exponentials of f16
// and bf16 are rounded to the dtype before they are multiplied with v. The order in which a result
// is summed depends on the extents and dtypes alone. NaNs, infinities and rows whose scores are all
// masked give the results of the single operations, NaN included.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cuda {

struct AttentionOperand {
  const void* data = nullptr;
  std::int64_t outer = 0, inner = 0, row = 0;  // strides, in elements
  std::int64_t member = 0;                     // from one head of `shared` to the next; 0 for k and
                                               // v
};

// An operand with one element for each score; a stride of 0 broadcasts it along that dim.
struct ScoreOperand {
  const void* data = nullptr;  // null: no such operand
  std::int64_t outer = 0, inner = 0, row = 0, column = 0, member = 0;
};

struct Attention {
  DType dtype = bf16;      // of q, k and v: f16, bf16, f32
  DType out_dtype = bf16;  // dtype, or f32
  DType bias_dtype = f32;  // dtype, or f32
  // Scores of columns beyond row + causal_offset are `masked` too. If `masked` is -infinity, or so
  // small that its exponential is 0, they are not computed.
  bool causal = false;
  int shared = 1;
  std::int64_t outer = 1, inner = 1;
  std::int64_t q_rows = 0, k_rows = 0;  // at least 1
  std::int64_t depth = 0, v_depth = 0;  // of q and k; of v and the result
  AttentionOperand q, k, v;
  void* out = nullptr;  // strides: see out_outer and following
  std::int64_t out_outer = 0, out_inner = 0, out_row = 0, out_member = 0;
  // Null, or for each head first the greatest score of each row, then the sum of exp(score -
  // greatest) of each row, from which the derivatives are computed (attention_grad.h).
  float* sums = nullptr;
  std::int64_t sums_outer = 0, sums_inner = 0, sums_member = 0;  // strides
  float scale = 1;
  float masked = 0;   // may be -infinity
  ScoreOperand bias;  // added to the scaled scores
  ScoreOperand mask;  // bools of one byte: where false, the score is replaced by `masked`
  std::int64_t causal_offset = 0;
  // attention_scratch() bytes of the GPU's memory, at a multiple of 16. Null where
  // attention_scratch() is 0, or to keep the keys of a row in one part where they could be split,
  // which changes the order of the sums.
  void* scratch = nullptr;
};

// True if attention() takes these dtypes and extents; does not depend on addresses and strides.
bool takes_attention(const Attention& attention);

// Bytes for `scratch`: if there are few rows and heads, several blocks of threads share the keys of
// a row and write partial results there. Depends on dtypes and extents alone.
std::int64_t attention_scratch(const Attention& attention);

// Enqueues the computation on `native_stream`, a cudaStream_t of the current GPU. TypeError where
// takes_attention() is false.
void attention(const Attention& attention, void* native_stream);

}  // namespace shmap::cuda
