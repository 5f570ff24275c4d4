// The algebra of simplify: what changes no bit of any value.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// The operand that an equation's only result equals, in type too; null where there is none: x * 1,
// x / 1, x - 0 (x + 0 of integers alone: of floats it turns -0.0 to 0.0), stop_gradient,
// and conversions, reshapes, transpositions and broadcasts that change nothing.
const Atom* identity_of(const Eqn& eqn);

// Whether two equations of it in a row are one: transpositions, reshapes and broadcasts.
bool composes(const Primitive& primitive);
// Makes `eqn`, whose operand `first` makes, an equation of the operand of `first`.
void compose(Eqn& eqn, const Eqn& first);

}  // namespace shmap
