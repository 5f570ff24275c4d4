// A pass: gathers and scatters take in what stands around them.
//
// - Indices of which negative ones count from the end are read as they are: the gather, or the
//   scatter, adds the extent itself (GatherParams::from_end).
// - A gather whose slices are only reduced becomes one equation with the reduction (gather_reduce).
//
// The same values, to the last bit.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

JaxprRef fuse_gathers(const Jaxpr& jaxpr);

}  // namespace shmap
