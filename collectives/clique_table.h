// CliqueTable: which devices communicate in a collective, and where each result is stored.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/array/mesh_impl.h"
#include "shmap/collectives.h"

namespace shmap {

struct CrossTable;

// A clique is a set of devices that communicate in a collective: the devices that differ only in
// their coordinates on the collective's axes, or a group (axis_index_groups) of them. Where the
// operand does not vary over some of the other axes, several cliques have equal values, and one of
// them does the work for all.
//
// A table is made once for each (mesh, axes, groups, variance) and kept until the process ends.
// Positions are local positions of the mesh.
struct CliqueTable {
  // A destination of a result: one block in one memory space, for all cliques that have equal
  // values.
  struct Target {
    MemorySpace* space;
    std::uint32_t position;              // its first device; the work is enqueued in its stream
    std::vector<std::uint32_t> members;  // rank -> position to read from, in `space` if possible
    std::vector<std::uint32_t> folded;   // members in mesh order: the order of reductions
    std::uint32_t first_block, block_count;  // of rank_blocks
  };
  // One stored result of a rank: the devices of a target that have the same rank share it.
  struct RankBlock {
    std::uint32_t target, rank;
    std::uint32_t position;  // the first of these devices
  };
  std::vector<int> axes;    // of the collective, as indices of mesh axes
  std::uint32_t ranks = 1;  // the number of ranks of a clique
  // Not null if a clique has ranks in several processes of the mesh: the table of what each process
  // sends to which other one. Null in all processes or in none. With a CrossTable, members in other
  // processes are Cliques::kElsewhere, and `folded` is empty.
  std::shared_ptr<const CrossTable> cross;
  std::vector<Target> targets;
  // Targets with equal results, in memory of one hardware device (that of a CPU is one): one task
  // writes the results of a team.
  std::vector<std::vector<std::uint32_t>> teams;
  std::vector<RankBlock> rank_blocks;        // ordered by target
  std::vector<std::uint32_t> target_of;      // by position
  std::vector<std::uint32_t> rank_block_of;  // by position
  // All cliques, independently of the axes over which the operand varies: [clique][rank] ->
  // position. Each position is in exactly one clique.
  std::vector<std::vector<std::uint32_t>> cliques;
};

// `varying`: the mask of mesh axes over which the operand varies. axes: names or indices of axes of
// the mesh.
const CliqueTable& clique_table(const detail::MeshImpl& mesh, const std::vector<std::string>& axes,
                                const Groups& groups, std::uint32_t varying);
const CliqueTable& clique_table(const detail::MeshImpl& mesh, const std::vector<int>& axes,
                                const Groups& groups, std::uint32_t varying);

}  // namespace shmap
