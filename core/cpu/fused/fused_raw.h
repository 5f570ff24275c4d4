// Which raw kernels the primitives of a fused program are.
#pragma once
#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// The step of an elementwise primitive, without places: its kind, kernel and dtype. An Error where
// there is none.
FusedStep raw_step(const Primitive& primitive, const Params& params, DType operand, DType result);
ReduceFn raw_reduction(const Primitive& primitive, DType dtype);

}  // namespace shmap::cpu
