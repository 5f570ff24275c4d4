// wider_tile_bytes decides whether a fused step list is planned again with tiles of more than the
// usual size.
#pragma once
#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// Returns the bytes of the larger tiles; 0: the list stays as it is. Tiles may grow if only
// operands and results need memory, since a tile then need not fit in a near cache.
std::int64_t wider_tile_bytes(const FusedStepList& list);

}  // namespace shmap::cpu
