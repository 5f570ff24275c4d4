// The derivatives of a program that is called: the called program is differentiated once for each
// set of operands that have a tangent, and called so.
#pragma once
#include "core/ops/rules.h"

namespace shmap {

void jvp_jit(JvpCall& call);
void transpose_jit(TransposeCall& call);

}  // namespace shmap
