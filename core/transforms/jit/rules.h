// The derivatives of a called program: they call the derivative of the program, which is made once
// for each set of operands with tangents.
#pragma once
#include "core/ops/rules.h"

namespace shmap {

void jvp_jit(JvpCall& call);
void transpose_jit(TransposeCall& call);

}  // namespace shmap
