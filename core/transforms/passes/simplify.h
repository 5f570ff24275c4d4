// Simplification: a jaxpr that computes the same values, to the last bit, with fewer equations.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Arguments, results and their types stay; effects stay, in their order. Programs inside equations
// are simplified too.
//
//   common subexpressions  equations of equal primitive, parameters and operands become one
//   constants              ops on host scalars alone run now, and leave their value
//   algebra                what only renames a value goes: x * 1, a conversion to x's own dtype,
//                          a transposition of a transposition …
//   scalars                an elementwise op's operand that repeats a host scalar is that scalar
//   dead code              (core/transforms/passes/dead_code.h)
//
// Time is linear in the number of equations. Gives back the program itself where nothing changes.
JaxprRef simplify(const Jaxpr& jaxpr);

// Of a program of global arrays, which is to be lowered: without algebra outside of mapped bodies,
// so that every equation stays that decides how its result is split. An op of two in one's place
// may split otherwise than the two would.
JaxprRef simplify_global(const Jaxpr& jaxpr);

}  // namespace shmap
