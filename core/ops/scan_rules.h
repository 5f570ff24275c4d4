// Derivatives of cumulative operations. Except for cumsum, a tree combines neighbours; its depth is
// log2 of the extent. Equal elements share the tangents of cummax and cummin, as in max and min.
#pragma once
#include "core/ops/rules.h"

namespace shmap {

void jvp_cumprod(JvpCall& call);
void jvp_cummax(JvpCall& call);
void jvp_cummin(JvpCall& call);
void jvp_cumlogsumexp(JvpCall& call);
void transpose_cumsum(TransposeCall& call);

}  // namespace shmap
