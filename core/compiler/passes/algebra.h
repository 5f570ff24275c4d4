// The algebraic simplifications of simplify, which change no bit of any value.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// The operand that is equal to the equation's only result, in type too; null where there is none: x
// * 1, x / 1, x - 0 (x + 0 for integers only: for floats it turns -0.0 to 0.0), stop_gradient, and
// conversions, reshapes, transpositions and broadcasts that change nothing.
const Atom* identity_of(const Eqn& eqn);

// Whether two successive equations of this primitive can be one: transpositions, reshapes and
// broadcasts.
bool composes(const Primitive& primitive);
// Makes `eqn`, whose operand is the result of `first`, an equation of the operand of `first`.
void compose(Eqn& eqn, const Eqn& first);

}  // namespace shmap
