// Batching rules of the collectives: a collective moves, sums or gathers blocks that include the
// batch dimension; parameters that name dims name those of one example.
#pragma once
#include "core/ops/batch_rules.h"

namespace shmap {

void batch_gather_blocks(BatchCall& call);   // all_gather, all_gather_invariant
void batch_scatter_blocks(BatchCall& call);  // psum_scatter, pscatter
void batch_all_to_all(BatchCall& call);

}  // namespace shmap
