// Makes products add their results to a term: `product + x` without an array of the product alone.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

// Merges a dot_general with the addition that is the only reader of its result into one
// product_into equation (core/ops/product.h), where the kernel of dot_general adds to the contents
// of its result with the bits of a separate addition (Kernel::accumulates) and the result is small.
// A product never waits for more collectives than before. For backends with kernels for both, after
// fuse(): an addition that is part of a chain stays there. Returns `jaxpr` itself where there is
// nothing to merge. The same values, to the last bit.
JaxprRef add_into_products(const Jaxpr& jaxpr, DeviceKind kind);

}  // namespace shmap
