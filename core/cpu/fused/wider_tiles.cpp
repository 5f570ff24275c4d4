#include "core/cpu/fused/wider_tiles.h"

#include <algorithm>

namespace shmap::cpu {

namespace {

// Tiles whose values all stay in registers have more rows, which share the fixed cost of a tile.
constexpr std::int64_t kWideTileBytes = 32768;
// Tiles that read each row once and store only one reduction of it have up to kMostTileRows rows,
// but no more than leave kManyTiles tiles for the threads to share.
constexpr std::int64_t kMostTileRows = 64, kManyTiles = 64;

// True if a tile has several rows and the only full values that it stores are results.
bool keeps_values_in_registers(const FusedStepList& list) {
  if (list.tile_rows == 1) return false;
  for (std::size_t stage = 1; stage + 1 < list.stages.size(); stage += 2)
    for (std::int32_t i = list.stages[stage]; i < list.stages[stage + 1]; ++i)
      if (list.steps[static_cast<std::size_t>(i)].out.base == kFusedScratch) return false;
  return true;
}

// True if the only use of full values is one reduction of them at the end of a chain.
bool only_folds(const FusedStepList& list) {
  int folds = 0;
  for (std::size_t stage = 0; stage + 1 < list.stages.size(); ++stage) {
    const std::int32_t begin = list.stages[stage], end = list.stages[stage + 1];
    if (stage % 2 == 1 && begin < end) return false;
    for (std::int32_t i = begin; i < end; ++i) {
      const FusedStep::Kind kind = list.steps[static_cast<std::size_t>(i)].kind;
      if (kind == FusedStep::reduce) return false;
      folds += kind == FusedStep::reduce_chain;
    }
  }
  return folds == 1;
}

}  // namespace

std::int64_t wider_tile_bytes(const FusedStepList& list) {
  if (only_folds(list)) {
    const std::int64_t rows = std::clamp<std::int64_t>(list.rows / kManyTiles, 1, kMostTileRows);
    return std::max((rows * list.cols + 1) * std::int64_t{sizeof(float)}, kWideTileBytes);
  }
  return keeps_values_in_registers(list) ? kWideTileBytes : 0;
}

}  // namespace shmap::cpu
