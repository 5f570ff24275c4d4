// Merges products of matrices with the equations that use their results (core/ops/product.h).
#pragma once
#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// Merges a dot_general of floats with the equations after it, if its result has no other reader, in
// this order:
//   additions of a number for each column (a bias), and of an array of the product's type;
//   relu or gelu (approximate);
//   the dynamic_update_slice that writes the result into a larger array, if the host knows the
//     offset (core/compiler/passes/known_scalars.h); the added array, if any, must then be the
//     slice that the update replaces.
// Factors that are dynamic_slices with no other reader are read from their arrays, where they are
// contiguous and the host knows their places. An array that a chain of products writes completely
// is not filled before. Products of f64 are not merged with a bias or an activation. A product
// never waits for more collectives than before: values that depend on more collectives in a row
// than its operands are not merged. Programs inside equations are left as they are. Returns the
// program itself where there is nothing to do.
JaxprRef fuse_products(const Jaxpr& jaxpr, const detail::MeshImpl& mesh);

// Whether devices of that kind have kernels for these equations, and neither SHMAP_FUSE_PRODUCTS
// nor SHMAP_CHECK_NANS (which needs each operation's results) forbids them.
bool can_fuse_products(DeviceKind kind);

}  // namespace shmap
