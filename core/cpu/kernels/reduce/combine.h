// The arithmetic of reducing collectives, for one thread: elementwise over the ranks.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/reduce/reduce.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// out[i] = op over r of ranks[r][i], for begin <= i < end, in one pass over memory. The order is
// one balanced binary tree, a function of n alone: with p the largest power of two up to n, rank
// p + i folds into rank i first, then neighbours at distance 1, 2, 4, … combine. f16 and bf16 go
// through the whole tree in f32 and are rounded once. n is at least 1; the op has a reduce_kernel
// for the dtype, else a TypeError. `out` may be one of the ranks. `non_temporal`: write past the
// caches, for results well above cache size that are not read soon.
void combine_ranks(Reduction op, DType dtype, const void* const* ranks, int n, void* out,
                   std::int64_t begin, std::int64_t end, bool non_temporal = false);

}  // namespace shmap::cpu
