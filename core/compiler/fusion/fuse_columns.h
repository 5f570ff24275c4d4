// Fuses reductions of columns with the equations that compute their operands, so that these are
// never stored: the squares of a column's norm, or the comparisons of an `any`.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Merges a reduction of the outermost dims and the elementwise or `fused` equation of its operand,
// whose only result has no other reader, into one `fused_columns` equation
// (core/runtime/fused_columns.h). Returns `jaxpr` itself where there is nothing to merge. For
// backends with a kernel for `fused_columns`, after fuse() and fuse_slices(). The same values, to
// the last bit.
JaxprRef fuse_columns(const Jaxpr& jaxpr);

}  // namespace shmap
