// Fusion: makes equations of `fused` (core/runtime/fused_program.h) from elementwise operations,
// broadcasts and reductions of rows that feed each other.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// The same results, to the last bit, from fewer and larger equations; other equations, and the
// order of effects and of collectives, stay. Equations fuse where they work on one space of rows
// and columns and vary over the same mesh axes. A value that other equations use too becomes a
// second result of the fused equation, so that nothing is computed twice, with two exceptions:
// broadcasts and reshapes, which cost nothing inside a fused program, and random bits, which are
// cheaper to compute than to store. The operand of a collective waits for nothing new. Programs
// inside equations are left as they are.
JaxprRef fuse(const Jaxpr& jaxpr);

}  // namespace shmap
