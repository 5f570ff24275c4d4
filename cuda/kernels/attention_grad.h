// The derivatives of attention (attention.h), which compute scores again, a tile at a time, from
// what attention left in Attention::sums (Dao, FlashAttention-2): no array of them is made.
//
// Scores, weights and sums are f32; weights and the scores' gradients of f16 and bf16 are rounded
// to the dtype before they are multiplied with rows. A score that is masked does not depend on q
// and k. The order in which a result is summed depends on the extents and dtypes alone; nothing is
// added atomically.
#pragma once
#include "cuda/kernels/attention.h"

namespace shmap::cuda {

// Where a result goes: as AttentionOperand.
struct AttentionGradient {
  void* data = nullptr;
  std::int64_t outer = 0, inner = 0, row = 0;
  std::int64_t member = 0;
};

struct AttentionGrad {
  Attention a;                            // as it was called, with its result and its sums
  AttentionOperand cotangent;             // of the result, and of its dtype
  AttentionGradient q_bar, k_bar, v_bar;  // of a.dtype; the latter two are sums over a.shared
  bool adds = false;        // k_bar and v_bar are added to what is there, as other heads left it
  void* scratch = nullptr;  // attention_grad_scratch() bytes, at a multiple of 16
};

// Bytes for AttentionGrad::scratch, by the extents alone.
std::int64_t attention_grad_scratch(const Attention& attention);

// Enqueues the cotangents of q, k and v on `native_stream`, a cudaStream_t of the current GPU.
// TypeError where takes_attention() says no.
void attention_grad(const AttentionGrad& grad, void* native_stream);

struct AttentionTangent {
  Attention a;                           // as in AttentionGrad
  AttentionOperand q_dot, k_dot, v_dot;  // without data: zero
  AttentionGradient out_dot;             // of a.out_dtype
};

// Enqueues the tangent of the result, by multiply-adds in f32, also of f16 and bf16. TypeError
// where takes_attention() says no.
void attention_tangent(const AttentionTangent& tangent, void* native_stream);

}  // namespace shmap::cuda
