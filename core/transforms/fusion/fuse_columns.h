// Reductions of columns that take in what makes their operand: the squares of a column's norm, or
// the comparisons of an `any`, are never stored.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// The program in which a reduction of the outermost dims and the elementwise or `fused` equation
// before it, whose one result nobody else uses, are one `fused_columns` equation
// (core/runtime/fused_columns.h); itself where there are none. For backends with a kernel of it,
// after fuse() and fuse_slices(). The same values, to the last bit.
JaxprRef fuse_columns(const Jaxpr& jaxpr);

}  // namespace shmap
