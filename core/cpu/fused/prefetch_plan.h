// plan_prefetch: which operands the calls of a fused step list prefetch for the next tile, and how
// many bytes each call.
#pragma once
#include <vector>

#include "core/cpu/fused/lowered_op.h"

namespace shmap::cpu {

// Sets `prefetch` and `prefetch_bytes` of a list whose stages and tiles are decided; leaves them
// empty where the processor itself prefetches well enough. `operands`: for each operand of the call
// its index in `values`.
void plan_prefetch(FusedStepList& list, const std::vector<LoweredValue>& values,
                   const std::vector<int>& operands);

}  // namespace shmap::cpu
