// Slices as operands of fused programs, which read the rows where they lie: a stencil's shifted
// parts of an array are not copied first.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// The program in which `fused` equations take the arrays in the place of their slices, where these
// have steps of 1 and rows of one pitch, long enough to be worth a call each; slices that nobody
// else uses are gone. Itself where there are none. For backends whose `fused` reads parts
// (FusedProgram::Part). The same values, to the last bit.
JaxprRef fuse_slices(const Jaxpr& jaxpr);

}  // namespace shmap
