// Slices that are joined are not copied first: roll, and arrays made of parts of others.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// The program in which a concatenate and those of its operands that are slices, which nobody else
// uses, are one `concatenate_slices` equation (core/ops/concatenate_slices.h); itself where there
// are none. For backends with a kernel of it, after fuse_slices(). The same values, to the last
// bit.
JaxprRef join_slices(const Jaxpr& jaxpr);

}  // namespace shmap
