// Concatenates slices without copying them first: roll, and arrays made of parts of others.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Merges a concatenate with those of its operands that are slices without other readers into one
// `concatenate_slices` equation (core/ops/concatenate_slices.h). Returns `jaxpr` itself where there
// is nothing to merge. For backends with a kernel for `concatenate_slices`, after fuse_slices().
// The same values, to the last bit.
JaxprRef join_slices(const Jaxpr& jaxpr);

}  // namespace shmap
