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

// For results of which each rank has its own: one for each slot.
inline void give_slots(const CliqueTable& table, std::span<const Block> slots,
                       std::span<Block> out) {
  enter_blocks(out, [&](std::size_t p) -> const Block& { return slots[table.slot_of[p]]; });
}

}  // namespace shmap
