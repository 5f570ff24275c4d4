// Simplification: a jaxpr that computes the same values, to the last bit, with fewer equations.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Arguments, results and their types stay, and so does the order of effects. Programs inside
// equations are simplified too.
//
//   common subexpressions  equations of equal primitive, parameters and operands become one
//   constants              operations on host scalars alone are evaluated
//   algebra                equations that only rename a value are removed: x * 1, a conversion to
//                          x's own dtype, a transposition of a transposition …
//   scalars                an elementwise operation reads a host scalar instead of its broadcast
//   dead code              (core/compiler/passes/dead_code.h)
//
// The time is linear in the number of equations. Returns the program itself where nothing changes.
JaxprRef simplify(const Jaxpr& jaxpr);

// For a program of global arrays that is to be lowered: without algebra outside of mapped bodies,
// because every equation there may decide how its result is split. One operation in place of two
// might split its result in another way.
JaxprRef simplify_global(const Jaxpr& jaxpr);

}  // namespace shmap
