// Attention on the calling thread: softmax(scale · q kᵀ + bias, masked) v of one head, in tiles of
// scores that are computed and used while they are in the cache (FlashAttention, Dao et al. 2022;
// the order of the loops is that of FlashAttention-2, Dao 2023). Scratch memory, which the thread
// keeps, grows at most linearly with one sequence. Products of tiles are gemm's (gemm.h), in f32.
//
// Results depend on the operands and on the block sizes, never on how rows are shared out among
// threads.
#pragma once
#include <cstdint>
#include <span>

#include "shmap/dtype.h"

namespace shmap::cpu {

// A matrix of features. The features of a row are contiguous.
struct AttentionMatrix {
  const void* data = nullptr;
  std::int64_t row = 0;  // elements from one row to the next
};
struct AttentionResult {
  void* data = nullptr;
  std::int64_t row = 0;
};
// An operand with one element for each score; null if absent. Strides are in elements, and 0 along
// a dim in which the operand repeats.
struct AttentionScoreOperand {
  const void* data = nullptr;
  std::int64_t row = 0, column = 0;
};

// The operands of one head.
struct AttentionHead {
  DType dtype = f32;       // of q, k, v: f32, bf16 or f16
  DType out_dtype = f32;   // of the result and of its cotangent: one of the same three
  DType bias_dtype = f32;  // one of the same three
  std::int64_t q_rows = 0, k_rows = 0, depth = 0, v_depth = 0;  // all > 0
  AttentionMatrix q, k, v;
  AttentionScoreOperand bias, mask;  // mask: bools; where false, the score is replaced by `masked`
  float scale = 1, masked = 0;
  bool causal = false;  // scores in columns beyond row + causal_offset are replaced too
  std::int64_t causal_offset = 0;
  // The most rows of q and of k in a tile; multiples of 16.
  std::int64_t row_block = 256, column_block = 256;
};

// Computes rows [begin, end) of the result; `begin` is a multiple of row_block. `out` points to row
// 0. `sums`, unless null, gets the largest score of each of the q_rows, then for each row the sum
// of exp(score - largest).
void attention(const AttentionHead& head, std::int64_t begin, std::int64_t end,
               const AttentionResult& out, float* sums);

// A head and the results of its forward pass: its result, `sums` as above, and the cotangent of the
// result.
struct AttentionGradHead : AttentionHead {
  AttentionMatrix out, cotangent;
  const float* sums = nullptr;
  AttentionResult q_bar;
};

// The functions attention_grad* compute q_bar of each head, and k_bar and v_bar. The heads share
// one k and v, so k_bar and v_bar are summed over the heads in their order. Masked scores
// contribute nothing to q_bar and k_bar.
//
// attention_grad: all three results in one pass. attention_grad_columns: rows [begin, end) of k_bar
// and v_bar; `begin` is a multiple of column_block. attention_grad_rows: rows of one head's q_bar;
// `begin` is a multiple of row_block. The last two together give the same bits as attention_grad.
void attention_grad(std::span<const AttentionGradHead> heads, const AttentionResult& k_bar,
                    const AttentionResult& v_bar);
void attention_grad_columns(std::span<const AttentionGradHead> heads, std::int64_t begin,
                            std::int64_t end, const AttentionResult& k_bar,
                            const AttentionResult& v_bar);
void attention_grad_rows(const AttentionGradHead& head, std::int64_t begin, std::int64_t end);

// A head with the tangents of q, k and v; null stands for a zero tangent.
struct AttentionTangentHead : AttentionHead {
  AttentionMatrix out, q_dot, k_dot, v_dot;
  const float* sums = nullptr;
};
// Computes rows [begin, end) of the result's tangent; `begin` is a multiple of row_block.
void attention_tangent(const AttentionTangentHead& head, std::int64_t begin, std::int64_t end,
                       const AttentionResult& out_dot);

// True if the functions above take heads of this dtype.
bool attention_takes(DType dtype);

// Opens the library that multiplies. The thread that enqueues calls it before a worker computes.
void prepare_attention();

}  // namespace shmap::cpu
