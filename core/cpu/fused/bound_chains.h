// Binds chains to the addresses of constants, which are the same in every run.
#pragma once
#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// Fills list.bound_ops and sets `bound` for each step whose chain reads only constants. The
// addresses point into list.constants: they survive a move of the list, but a copy must be bound
// again.
void bind_constants(FusedStepList& list);

}  // namespace shmap::cpu
