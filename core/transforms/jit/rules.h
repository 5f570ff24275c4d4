// The rules of jit_p under jvp, transposition and vmap: each calls the derived program, which is
// made once for each set of operands (core/transforms/autodiff/derived.h).
#pragma once
#include "core/ops/rules.h"

namespace shmap {

void jvp_jit(JvpCall& call);
void transpose_jit(TransposeCall& call);
void batch_jit(BatchCall& call);

}  // namespace shmap
