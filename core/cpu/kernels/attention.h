// Attention on the calling thread: softmax(scale · q kᵀ + bias, masked) v of one head, in tiles of
// scores that are made and used up while they are in the cache (FlashAttention, Dao et al. 2022;
// the order of the loops is that of FlashAttention-2, Dao 2023). Memory, which the thread keeps,
// grows with one sequence at most. Products of tiles are gemm's (gemm.h), in f32.
//
// Results depend on the operands and on the block sizes, never on how rows are shared out among
// threads.
#pragma once
#include <cstdint>
#include <span>

#include "shmap/dtype.h"

namespace shmap::cpu {

// Rows of features, which lie together.
struct AttentionMatrix {
  const void* data = nullptr;
  std::int64_t row = 0;  // elements from one row to the next
};
struct AttentionResult {
  void* data = nullptr;
  std::int64_t row = 0;
};
// What each score has one of; null: there is none. Strides in elements, 0 where it repeats.
struct AttentionScoreOperand {
  const void* data = nullptr;
  std::int64_t row = 0, column = 0;
};

// One head.
struct AttentionHead {
  DType dtype = f32;       // of q, k, v: f32, bf16 or f16
  DType out_dtype = f32;   // of the result and of its cotangent: one of these
  DType bias_dtype = f32;  // one of these
  std::int64_t q_rows = 0, k_rows = 0, depth = 0, v_depth = 0;  // all > 0
  AttentionMatrix q, k, v;
  AttentionScoreOperand bias, mask;  // mask: bools; where it is false, a score is `masked`
  float scale = 1, masked = 0;       // scale > 0, masked <= 0
  bool causal = false;               // columns beyond row + causal_offset are `masked` too
  std::int64_t causal_offset = 0;
  // The most rows of q and of k in a tile; multiples of 16.
  std::int64_t row_block = 256, column_block = 256;
};

// Rows [begin, end) of the result, `begin` a multiple of row_block. `out`: from row 0. `sums`,
// unless it is null: for each of the q_rows the largest score, then for each the sum of exp(score -
// largest).
void attention(const AttentionHead& head, std::int64_t begin, std::int64_t end,
               const AttentionResult& out, float* sums);

// A head and what its forward pass left: its result, sums as above, and the result's cotangent.
struct AttentionGradHead : AttentionHead {
  AttentionMatrix out, cotangent;
  const float* sums = nullptr;
  AttentionResult q_bar;
};

// Where a row's scores are all masked they do not depend on q and k.
//
// Of heads that have one k and v: their q_bar, and rows of k_bar and v_bar, which are sums over the
// heads in their order.
//
// attention_grad: all three in one pass. attention_grad_columns: rows [begin, end) of k_bar and
// v_bar; `begin` is a multiple of column_block. attention_grad_rows: rows of one head's q_bar,
// likewise of row_block. The two have together the bits of attention_grad.
void attention_grad(std::span<const AttentionGradHead> heads, const AttentionResult& k_bar,
                    const AttentionResult& v_bar);
void attention_grad_columns(std::span<const AttentionGradHead> heads, std::int64_t begin,
                            std::int64_t end, const AttentionResult& k_bar,
                            const AttentionResult& v_bar);
void attention_grad_rows(const AttentionGradHead& head, std::int64_t begin, std::int64_t end);

// A head with the tangents of q, k and v, each of which may be missing (null: zero).
struct AttentionTangentHead : AttentionHead {
  AttentionMatrix out, q_dot, k_dot, v_dot;
  const float* sums = nullptr;
};
// Rows [begin, end) of the result's tangent, `begin` a multiple of row_block.
void attention_tangent(const AttentionTangentHead& head, std::int64_t begin, std::int64_t end,
                       const AttentionResult& out_dot);

// The dtypes of a head that the functions above take.
bool attention_takes(DType dtype);

// For the thread that enqueues, before another one computes: opens the library that multiplies.
void prepare_attention();

}  // namespace shmap::cpu
