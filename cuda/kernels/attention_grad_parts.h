// Calls of attention's derivatives as their kernels get them. For attention_grad.cpp and the .cu
// files of the derivatives.
#pragma once
#include <cstdint>

#include "cuda/kernels/attention_grad.h"

namespace shmap::cuda {

// What a row of q has beside its scores: a weight is exp(score - most) · share, and the gradient of
// its score weight · (gradient of the weight - mean).
struct alignas(16) AttentionNote {
  float most, share, mean, unused;
};

// For so many rows of q one element of `felt` says whether masked scores count in any of them.
inline constexpr int kFeltRows = 16;

struct AttentionGradCall {
  Attention a;
  AttentionOperand cotangent;
  AttentionGradient q_bar, k_bar, v_bar;
  bool adds;
  bool plain;        // without bias and mask
  bool may_feel;     // where `felt` is to be looked at; else what causality hides never counts
  bool q_lies_well;  // in pieces of 16 bytes at multiples of 16; so too the others
  bool k_lies_well;
  bool v_lies_well;
  bool cotangent_lies_well;  // and is of the dtype of q
  bool in_pairs;             // two neighbours of any result are one aligned access
  AttentionNote* notes;      // [heads of q, rows]
  int* felt;                 // [heads of q, felt_tiles]
  std::int64_t felt_tiles;
};

// Fills notes and felt.
void attention_notes(const AttentionGradCall& call, void* native_stream);
// The cotangents, of these.
void attention_grad_f16(const AttentionGradCall& call, void* native_stream);
void attention_grad_bf16(const AttentionGradCall& call, void* native_stream);
void attention_grad_f32(const AttentionGradCall& call, void* native_stream);

void attention_tangents(const AttentionTangent& tangent, void* native_stream);

}  // namespace shmap::cuda
