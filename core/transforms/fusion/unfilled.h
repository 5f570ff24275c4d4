// Arrays of which a chain of products writes every element: their earlier contents are never read.
#pragma once
#include "core/ir/jaxpr.h"
#include "core/ops/product.h"

namespace shmap {

// Where a chain of products, each of which writes into the result of the one before, writes the
// whole array on every device, the first product gets no target. The program itself where there are
// none.
JaxprRef leave_unfilled(const Jaxpr& jaxpr);

// Whether the equation, as a product or product_into with those parameters, has the type of its
// result. Variance (where it is not checked) and weakness may differ.
bool makes_its_type(const Eqn& e, const ProductParams& params, const detail::AxisEnv* env);

}  // namespace shmap
