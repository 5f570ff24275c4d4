// Arrays that are written whole by products, one slice after another: what they hold before is
// nothing that anybody sees.
#pragma once
#include "core/ir/jaxpr.h"
#include "core/ops/product.h"

namespace shmap {

// Of products that write one array, each in the result of the one before, until all of it is
// written on every device, the first gets no target. The program itself where there are none.
JaxprRef leave_unfilled(const Jaxpr& jaxpr);

// Whether an equation of product or product_into with those parameters has its result's type:
// variance, in programs that do not check it, and weakness may be others.
bool makes_its_type(const Eqn& e, const ProductParams& params, const detail::AxisEnv* env);

}  // namespace shmap
