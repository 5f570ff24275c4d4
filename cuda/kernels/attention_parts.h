// A call of attention as its kernels get it. For attention.cpp and the .cu files of attention.
#pragma once
#include <cstdint>

#include "cuda/kernels/attention.h"

namespace shmap::cuda {

// Scores are held in one of two units. Where nothing is added to them and the scale is one that
// shrinks, they are held as the products q kᵀ, and the scale is part of the exponential's factor;
// else they are scaled, biased and masked first.
struct AttentionCall {
  Attention a;
  bool plain;        // held as products
  float factor;      // exp(score) is exp2(factor · what is held)
  float masked;      // what is held of a masked score
  bool q_lies_well;  // in pieces of 16 bytes at multiples of 16; so too k and v
  bool k_lies_well;
  bool v_lies_well;
  bool out_in_pairs;  // two neighbours of the result are one aligned access
};

void attention_f16(const AttentionCall& call, void* native_stream);
void attention_bf16(const AttentionCall& call, void* native_stream);
void attention_f32(const AttentionCall& call, void* native_stream);

}  // namespace shmap::cuda
