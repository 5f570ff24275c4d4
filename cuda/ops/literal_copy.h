// The kernel of primitives that are views except for literal operands.
#pragma once
#include "core/runtime/kernel.h"

namespace shmap::cuda {

// Copies the bytes of operand 0 to result 0.
void run_literal_copy(const KernelCall& call);

}  // namespace shmap::cuda
