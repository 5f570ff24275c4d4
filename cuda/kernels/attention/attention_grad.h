// The derivatives of attention (attention.h). The kernels recompute the scores, a tile at a time,
// from Attention::sums (Dao, FlashAttention-2): no array of all scores is stored.
//
// Scores, weights and sums are f32; for f16 and bf16, weights and the gradients of scores are
// rounded to the dtype before they are multiplied with rows. A masked score does not depend on q
// and k. The order in which a result is summed depends on the extents and dtypes alone; there are
// no atomic additions.
#pragma once
#include "cuda/kernels/attention/attention.h"

namespace shmap::cuda {

// The memory of a result; strides as in AttentionOperand.
struct AttentionGradient {
  void* data = nullptr;
  std::int64_t outer = 0, inner = 0, row = 0;
  std::int64_t member = 0;
};

struct AttentionGrad {
  Attention a;                            // the forward call, with its result and its sums
  AttentionOperand cotangent;             // of the result, with the result's dtype
  AttentionGradient q_bar, k_bar, v_bar;  // of a.dtype; k_bar and v_bar are sums over a.shared
  bool adds = false;        // adds k_bar and v_bar to the existing contents, the sums over other
                            // heads
  void* scratch = nullptr;  // attention_grad_scratch() bytes, at a multiple of 16
};

// Bytes for AttentionGrad::scratch; depends on the extents alone.
std::int64_t attention_grad_scratch(const Attention& attention);

// Enqueues the computation of the cotangents of q, k and v on `native_stream`, a cudaStream_t of
// the current GPU. TypeError where takes_attention() is false.
void attention_grad(const AttentionGrad& grad, void* native_stream);

struct AttentionTangent {
  Attention a;                           // as in AttentionGrad
  AttentionOperand q_dot, k_dot, v_dot;  // data null: zero
  AttentionGradient out_dot;             // of a.out_dtype
};

// Enqueues the computation of the result's tangent, by multiply-adds in f32 for every dtype.
// TypeError where takes_attention() is false.
void attention_tangent(const AttentionTangent& tangent, void* native_stream);

}  // namespace shmap::cuda
