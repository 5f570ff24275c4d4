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

// The number of rows of q for each element of `masked_counts`, which is nonzero if masked scores
// count in any of these rows.
inline constexpr int kMaskedRows = 16;

struct AttentionGradCall {
  Attention a;
  AttentionOperand cotangent;
  AttentionGradient q_bar, k_bar, v_bar;
  bool adds;
  bool plain;  // there are no bias and no mask
  // If false, scores hidden by the causal mask never count, and masked_counts is not read.
  bool reads_masked_counts;
  bool q_aligned;  // q starts at, and has rows at, multiples of 16 bytes; likewise the others
  bool k_aligned;
  bool v_aligned;
  bool cotangent_aligned;  // and has the dtype of q
  bool in_pairs;           // two neighbours of every result are one aligned access
  AttentionNote* notes;    // [heads of q, rows]
  int* masked_counts;      // [heads of q, masked_tiles]
  std::int64_t masked_tiles;
};

// Fills notes and masked_counts.
void attention_notes(const AttentionGradCall& call, void* native_stream);
// The cotangents, one function for each dtype of q.
void attention_grad_f16(const AttentionGradCall& call, void* native_stream);
void attention_grad_bf16(const AttentionGradCall& call, void* native_stream);
void attention_grad_f32(const AttentionGradCall& call, void* native_stream);

void attention_tangents(const AttentionTangent& tangent, void* native_stream);

}  // namespace shmap::cuda
