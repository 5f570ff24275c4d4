// The batching rules of the collectives: what moves, sums or gathers blocks does so with blocks
// that hold many; parameters that name dims name those of an element.
#pragma once
#include "core/ops/batch_rules.h"

namespace shmap {

void batch_gather_blocks(BatchCall& call);   // all_gather, all_gather_invariant
void batch_scatter_blocks(BatchCall& call);  // psum_scatter, pscatter
void batch_all_to_all(BatchCall& call);

}  // namespace shmap
