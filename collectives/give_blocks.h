// The end of a collective: each local device gets the block of its result.
#pragma once
#include <span>

#include "collectives/clique_table.h"
#include "core/ir/enter_blocks.h"

namespace shmap {

// For results that are stored once for each target. `out`, by position, has only empty entries, and
// those of devices that are not in the table stay empty.
inline void give_results(const CliqueTable& table, std::span<const Block> results,
                         std::span<Block> out) {
  const Block none;
  enter_blocks(out, [&](std::size_t p) -> const Block& {
    const std::uint32_t target = table.target_of[p];
    return target == Cliques::kElsewhere ? none : results[target];
  });
}

// For results of which each rank has its own: one block for each of rank_blocks.
inline void give_rank_blocks(const CliqueTable& table, std::span<const Block> results,
                             std::span<Block> out) {
  const Block none;
  enter_blocks(out, [&](std::size_t p) -> const Block& {
    const std::uint32_t block = table.rank_block_of[p];
    return block == Cliques::kElsewhere ? none : results[block];
  });
}

}  // namespace shmap
