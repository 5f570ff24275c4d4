// How the index space of a fused program is cut into tiles, and a long row into blocks.
#pragma once
#include <cstdint>

#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// A tile takes several short rows: as many that some values of a tile fit in the first-level cache
// (32 to 48 KB).
inline constexpr std::int64_t kUsualTileBytes = 8192;

// Sets rows, cols, tile_rows, block_cols and blocks of the list. tile_bytes: of a tile of the
// widest value of the program. by_rows: as make_fused_steps has it.
void cut_into_tiles(const FusedProgram& program, bool by_rows, std::int64_t tile_bytes,
                    FusedStepList* list);

}  // namespace shmap::cpu
