// The slices of calls of gather and scatter, for the adapters of both backends.
#pragma once
#include "core/base/slices.h"
#include "core/ops/gather_ops.h"
#include "core/runtime/kernel.h"

namespace shmap {

// `stacked`: the shape of gather's result.
Slices slices_of_gather(const KernelCall& call, const GatherParams& params, const Shape& stacked);
// The slices of a call with ScatterAddParams.
Slices slices_of_scatter(const KernelCall& call);

}  // namespace shmap
