// The arguments of the kernels of attention's derivatives. For attention_grad.cpp and the .cu files
// of the derivatives.
#pragma once
#include <cstdint>

#include "cuda/kernels/attention/attention_grad.h"

namespace shmap::cuda {

// Data of one row of q: the weight is exp(score - most) · share, and the gradient of the score is
// weight · (gradient of the weight - mean).
struct alignas(16) AttentionNote {
  float most, share, mean, unused;
};

// The number of rows of q for each element of `felt`, which is nonzero if masked scores count in
// any of these rows.
inline constexpr int kFeltRows = 16;

struct AttentionGradCall {
  Attention a;
  AttentionOperand cotangent;
  AttentionGradient q_bar, k_bar, v_bar;
  bool adds;
  bool plain;        // there are no bias and no mask
  bool may_feel;     // reads `felt`; else scores hidden by the causal mask never count
  bool q_lies_well;  // q has 16-byte pieces at multiples of 16; likewise the others
  bool k_lies_well;
  bool v_lies_well;
  bool cotangent_lies_well;  // and has the dtype of q
  bool in_pairs;             // two neighbours of every result are one aligned access
  AttentionNote* notes;      // [heads of q, rows]
  int* felt;                 // [heads of q, felt_tiles]
  std::int64_t felt_tiles;
};

// Fills notes and felt.
void attention_notes(const AttentionGradCall& call, void* native_stream);
// The cotangents, one function for each dtype of q.
void attention_grad_f16(const AttentionGradCall& call, void* native_stream);
void attention_grad_bf16(const AttentionGradCall& call, void* native_stream);
void attention_grad_f32(const AttentionGradCall& call, void* native_stream);

void attention_tangents(const AttentionTangent& tangent, void* native_stream);

}  // namespace shmap::cuda
