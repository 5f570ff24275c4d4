// Cuts the index space of a fused program into tiles, and a long row into blocks.
#pragma once
#include <cstdint>

#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// A tile takes so many short rows that a few values of the tile fit in the first-level cache
// (32 to 48 KB).
inline constexpr std::int64_t kUsualTileBytes = 8192;

// Sets rows, cols, tile_rows, block_cols, blocks and the groups of the list. tile_bytes: the bytes
// that the program's widest value has in one tile. by_rows: see make_fused_steps.
void cut_into_tiles(const FusedProgram& program, bool by_rows, std::int64_t tile_bytes,
                    FusedStepList* list);

}  // namespace shmap::cpu
