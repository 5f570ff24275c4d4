// Derivatives of reductions.
#pragma once
#include "core/ops/rules.h"

namespace shmap {

void jvp_reduce_prod(JvpCall& call);
void jvp_reduce_extremum(JvpCall& call);  // reduce_max, reduce_min: equal ones share
void transpose_reduce_sum(TransposeCall& call);

}  // namespace shmap
