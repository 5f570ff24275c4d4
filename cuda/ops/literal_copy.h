// The kernel of primitives that are views but for literals.
#pragma once
#include "core/runtime/kernel.h"

namespace shmap::cuda {

// The bytes of operand 0 become those of result 0.
void run_literal_copy(const KernelCall& call);

}  // namespace shmap::cuda
