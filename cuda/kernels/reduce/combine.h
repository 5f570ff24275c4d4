// The arithmetic of reducing collectives, enqueued on a stream: elementwise over the ranks.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/combined_piece.h"
#include "core/base/reduction_ops.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

// The most ranks that one call takes.
inline constexpr int kMaxRanks = 480;
// The most pieces that one kernel makes: with the ranks, they fit in 4096 bytes of parameters.
inline constexpr int kMaxPieces = 8;

// piece.out[row * length + i] = op over r of ranks[r][row * stride + piece.first + i], for row <
// rows and i < length, for each piece. The order is one balanced binary tree, a function of n
// alone: with p the largest power of two up to n, rank p + i folds into rank i first, then
// neighbours at distance 1, 2, 4, … combine. f16 and bf16 go through the whole tree in f32 and are
// rounded once. The results have the same bits as the CPU's. With one piece of whole rows `out` may
// be one of the ranks. TypeError where the dtype has no such op, ValueError for more than kMaxRanks
// ranks. The stream's device must be able to access all memory.
void combine_ranks(Reduction op, DType dtype, const void* const* ranks, int n,
                   std::span<const CombinedPiece> pieces, std::int64_t rows, std::int64_t length,
                   std::int64_t stride, void* stream);

}  // namespace shmap::cuda
