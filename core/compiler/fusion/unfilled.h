// Arrays of which a chain of products writes every element: their earlier contents are never read.
#pragma once
#include "core/ir/jaxpr.h"
#include "core/ops/product.h"

namespace shmap {

// If a chain of products, each of which writes into the result of the one before, writes the whole
// array on every device, removes the target of the first product. Returns `jaxpr` itself if there
// is no such chain.
JaxprRef leave_unfilled(const Jaxpr& jaxpr);

// True if the equation, taken as a product or product_into with `params`, would have the type of
// its result, with the same variance and weakness.
bool makes_its_type(const Eqn& e, const ProductParams& params, const detail::AxisEnv* env);

}  // namespace shmap
