// Derivatives of cumulative operations. All but the sum's come from a tree of combined neighbours,
// log2 of the extent deep, in which equal elements share as those of max and min do.
#pragma once
#include "core/ops/rules.h"

namespace shmap {

void jvp_cumprod(JvpCall& call);
void jvp_cummax(JvpCall& call);
void jvp_cummin(JvpCall& call);
void jvp_cumlogsumexp(JvpCall& call);
void transpose_cumsum(TransposeCall& call);

}  // namespace shmap
