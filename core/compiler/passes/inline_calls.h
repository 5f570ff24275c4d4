// Replaces calls of programs (Primitive::calls_program: jit, checkpoint, custom_jvp_call,
// custom_vjp_call, overlapped products) by the equations of those programs, because a plan would
// run each call as a plan of its own.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// For programs that are not differentiated any more. The program itself where it has no calls. The
// operands of a program that stays apart (a differentiated checkpoint) pass through optimization
// barriers.
JaxprRef inline_calls(const Jaxpr& jaxpr);

}  // namespace shmap
