// Fusion: a jaxpr in which elementwise operations, broadcasts and reductions of rows that feed each
// other have become equations of `fused` (core/runtime/fused_program.h).
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// The same results, to the last bit, from fewer and larger equations; other equations, and the
// order of effects and collectives, stay. Equations fuse where they work on one space of rows and
// columns and vary over the same mesh axes; a value that is used elsewhere too becomes a second
// result, never computed twice, but for broadcasts and reshapes, which cost nothing inside, and
// random bits, which are made where they are used and never stored. What a collective reads waits
// for nothing that it did not wait for before. Programs inside equations are left as they are.
JaxprRef fuse(const Jaxpr& jaxpr);

}  // namespace shmap
