// The arguments of attention's kernels. For attention.cpp and the .cu files of attention.
#pragma once
#include <cstdint>

#include "cuda/kernels/attention/attention.h"

namespace shmap::cuda {

// Rows of q that a block of threads handles, and rows of k and v that it reads at a time, when the
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

// The kernels hold scores in one of two units. If nothing is added to scores and the scale is at
// most one, they hold the products q kᵀ, and the scale is part of the factor of the exponential
// (plain); else they hold scaled, biased and masked scores.
struct AttentionCall {
  Attention a;
  bool plain;      // scores are held as products
  float factor;    // exp(score) is exp2(factor · the held value)
  float masked;    // the held value of a masked score
  bool q_aligned;  // q starts at, and has rows at, multiples of 16 bytes; likewise k and v
  bool k_aligned;
  bool v_aligned;
  bool out_in_pairs;  // two neighbours of the result are one aligned access
  // How many blocks of threads share the keys of a row, and how many key blocks each of them has.
  // With more than one, scratch gets [parts, rows of all heads, v_depth] unnormalised results,
  // followed by [parts, rows of all heads, 2]: the greatest held score and the sum.
  int parts, part_blocks;
};

// True if there is nothing to compute.
bool is_empty(const Attention& a);
// True if the address, the row stride and the strides of batch dims with more than one item are
// multiples of `bytes`, and rows consist of whole pieces of `bytes`. Also checked for a single row.
bool lies_in_pieces(const Attention& a, const AttentionOperand& x, std::int64_t depth, int item,
                    int bytes);
// Throws TypeError, in the name of the function `what`, where takes_attention() is false.
void check_attention(const char* what, const Attention& a);
// Limits causal_offset so that sums of rows and offsets do not overflow; the limit changes no
// result.
std::int64_t clamped_offset(const Attention& a);

void attention_f16(const AttentionCall& call, void* native_stream);
void attention_bf16(const AttentionCall& call, void* native_stream);
void attention_f32(const AttentionCall& call, void* native_stream);
// For f16 and bf16 with a depth of 65 to 128, whose keys are not shared by several blocks: by the
// instruction wgmma, if SHMAP_ATTENTION_KERNEL asks for it and the current GPU has it, as
// takes_warpgroups says.
bool takes_warpgroups(const AttentionCall& call);
void attention_by_warpgroups(const AttentionCall& call, void* native_stream);
// Computes the result from the parts' results in scratch.
void attention_join(const AttentionCall& call, void* native_stream);

}  // namespace shmap::cuda
