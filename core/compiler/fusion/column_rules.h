// Which reductions fuse_columns() fuses with what computes their operand.
#pragma once
#include "core/compiler/fusion/fuse_rules.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// Whether e reduces the outermost dims of an array that its kernel may make as it goes; `space`
// receives the rows and columns.
bool reduces_columns(const Eqn& e, FuseSpace* space);

}  // namespace shmap
