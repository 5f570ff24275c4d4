// Concatenates slices without copying them first: roll, and arrays made of parts of others.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Merges a concatenate with those of its operands that are slices without other readers into one
// `concatenate_slices` equation (core/ops/concatenate_slices.h). The program itself where there are
// none. For backends with a kernel for it, after fuse_slices(). The same values, to the last bit.
JaxprRef join_slices(const Jaxpr& jaxpr);

}  // namespace shmap
