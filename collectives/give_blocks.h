// The end of a collective: each local device gets the block of its result.
#pragma once
#include <span>

#include "collectives/clique_table.h"
#include "core/ir/enter_blocks.h"

namespace shmap {

// For results that are stored once for each target. `out`, by position, has only empty entries.
inline void give_results(const CliqueTable& table, std::span<const Block> results,
                         std::span<Block> out) {
  enter_blocks(out, [&](std::size_t p) -> const Block& { return results[table.target_of[p]]; });
}

// For results of which each rank has its own: one block for each of rank_blocks.
inline void give_rank_blocks(const CliqueTable& table, std::span<const Block> results,
                             std::span<Block> out) {
  enter_blocks(out, [&](std::size_t p) -> const Block& { return results[table.rank_block_of[p]]; });
}

}  // namespace shmap
