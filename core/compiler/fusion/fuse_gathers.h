// A pass that merges gathers and scatters with equations around them:
//
// - Indices of which negative ones count from the end are read unchanged: the gather or scatter
//   adds the extent itself (GatherParams::from_end).
// - A gather whose result is only reduced becomes one equation with the reduction (gather_reduce).
//
// The same values, to the last bit.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

JaxprRef fuse_gathers(const Jaxpr& jaxpr);

}  // namespace shmap
