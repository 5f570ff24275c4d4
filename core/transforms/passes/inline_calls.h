// Called programs (jit, checkpoint, custom_jvp_call, custom_vjp_call, overlapped products) in the
// place of the equations that call them: a plan would run each as a program of its own.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Of a program that is not differentiated any more; itself where it calls none. What a checkpoint
// computes again reads its operands through barriers.
JaxprRef inline_calls(const Jaxpr& jaxpr);

// Whether equations of it are such calls.
bool calls_program(const Primitive& primitive);

}  // namespace shmap
