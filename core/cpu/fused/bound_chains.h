// The addresses of what chains read of constants alone, which are the same in every run.
#pragma once
#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// Fills list.bound_ops, and says of each step whether they are all that its chain needs. They point
// into list.constants: a list that is moved keeps them, a copy has to be bound again.
void bind_constants(FusedStepList& list);

}  // namespace shmap::cpu
