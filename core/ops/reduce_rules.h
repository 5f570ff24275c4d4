// Derivatives of reductions.
#pragma once
#include "core/base/reduction_ops.h"
#include "core/ops/rules.h"

namespace shmap {

// jvp_reduce_sum and so on, for the rows of core/base/reduction_ops.h. Only those that primitives
// use are defined.
#define SHMAP_DECLARE(name, domain, primitive) void jvp_##primitive(JvpCall& call);
SHMAP_REDUCTIONS(SHMAP_DECLARE)
#undef SHMAP_DECLARE
void transpose_reduce_sum(TransposeCall& call);

}  // namespace shmap
