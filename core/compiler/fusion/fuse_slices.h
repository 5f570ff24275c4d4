// Makes fused programs read slices directly from their arrays: the shifted parts of an array in a
// stencil, for example, are not copied first.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Replaces slices that are operands of `fused` equations by their arrays, where the slices have
// steps of 1 and consist of rows of one pitch that are long enough; slices without other readers
// are removed. Returns `jaxpr` itself where there are no such slices. For backends whose `fused`
// reads parts (FusedProgram::Window). The same values, to the last bit.
JaxprRef fuse_slices(const Jaxpr& jaxpr);

}  // namespace shmap
