// Derivatives of sorting: tangents move with their elements.
#pragma once
#include "core/ops/rules.h"

namespace shmap {

void jvp_sort(JvpCall& call);
void jvp_top_k(JvpCall& call);

}  // namespace shmap
