// A call of attention as its kernels get it. For attention.cpp and the .cu files of attention.
#pragma once
#include <cstdint>

#include "cuda/kernels/attention.h"

namespace shmap::cuda {

// Rows of q that a block of threads has, and rows of k and v that it reads at a time, where the
// greater of the depths is padded to `depth`: 64, 128 or 256.
struct AttentionTiles {
  int rows, columns;
};
constexpr AttentionTiles half_attention_tiles(int depth) {
  return depth > 128 ? AttentionTiles{64, 32} : AttentionTiles{128, 64};
}
constexpr AttentionTiles f32_attention_tiles(int depth) {
  return depth > 128 ? AttentionTiles{32, 32} : AttentionTiles{64, 64};
}

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
  // How many blocks of threads share the keys of a row, and how many key blocks each has. With more
  // than one, scratch gets [parts, rows of all heads, v_depth] unnormalised results, and then
  // [parts, rows of all heads, 2] greatest scores, as held, and sums.
  int parts, part_blocks;
};

// Whether there is nothing to compute.
bool is_empty(const Attention& a);
// Whether all rows begin at multiples of `bytes`, also where there would be more of them, and are
// whole pieces of so many.
bool lies_in_pieces(const Attention& a, const AttentionOperand& x, std::int64_t depth, int item,
                    int bytes);
// TypeError, of the function `what`, where takes_attention() says no.
void check_attention(const char* what, const Attention& a);
// causal_offset, so that sums of rows and offsets fit; beyond these bounds nothing changes.
std::int64_t clamped_offset(const Attention& a);

void attention_f16(const AttentionCall& call, void* native_stream);
void attention_bf16(const AttentionCall& call, void* native_stream);
void attention_f32(const AttentionCall& call, void* native_stream);
// The result from what the parts left in scratch.
void attention_join(const AttentionCall& call, void* native_stream);

}  // namespace shmap::cuda
