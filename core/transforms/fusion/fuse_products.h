// Products of matrices that have become one equation with what comes after them
// (core/ops/product.h).
#pragma once
#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// A dot_general of floats whose result only what follows uses takes in, in this order:
//   an addition of a number for each column, and of an array of the product's type;
//   relu or gelu (approximate);
//   the dynamic_update_slice that it is the update of, where the host knows the place
//   (core/transforms/passes/known_scalars.h), and which may be where the other term was read from.
// Factors that are dynamic_slices in one piece, at known places and of no other use, are read where
// they lie. An array all of which products write, one slice after another, is not filled before.
// Products of f64 have no bias and no activation. A product waits for no more collectives than it
// did: what has come through more of them in a row than the product's operands is not taken in.
// Programs inside equations are left as they are. The result itself where there is nothing to do.
JaxprRef fuse_products(const Jaxpr& jaxpr, const detail::MeshImpl& mesh);

// Whether devices of that kind run such equations, and SHMAP_FUSE_PRODUCTS and SHMAP_CHECK_NANS,
// which looks for the operation that made the first NaN, leave them.
bool can_fuse_products(DeviceKind kind);

}  // namespace shmap
