// wider_tile_bytes: whether a fused step list, planned with tiles of the usual size, is planned
// again with larger ones.
#pragma once
#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// The bytes of the larger tiles; 0: the list stays as it is. Tiles may grow where no value but the
// operands and results needs memory, so that a tile need not fit in a near cache.
std::int64_t wider_tile_bytes(const FusedStepList& list);

}  // namespace shmap::cpu
