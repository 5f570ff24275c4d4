// Who talks to whom in a collective: the ranks of every clique, and where each result is stored.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/array/mesh_impl.h"
#include "shmap/collectives.h"

namespace shmap {

struct CrossTable;

// A clique is the set of devices that a collective runs in: those that differ only in the
// collective's axes, or a group (axis_index_groups) of these. Where the operand does not vary over
// some of the other axes, several cliques hold the same values, and one of them does the work for
// all.
//
// Made once for each (mesh, axes, groups, variance) and kept for ever. Positions are those of the
// mesh's local devices.
struct CliqueTable {
  // What is stored once: the result, in one memory space, of cliques that hold the same values.
  struct Site {
    MemorySpace* space;
    std::uint32_t position;              // its first device, whose stream its work goes to
    std::vector<std::uint32_t> members;  // rank -> position to read from; in `space` if any is
    std::vector<std::uint32_t> folded;   // members in mesh order: the order of reductions
    std::uint32_t first_slot, slot_count;
  };
  // What is stored once for a rank: the devices of a site that have one rank.
  struct Slot {
    std::uint32_t site, rank;
    std::uint32_t position;  // the first of them
  };
  std::vector<int> axes;    // of the collective, indices
  std::uint32_t ranks = 1;  // of a clique
  // Where some process of the mesh lacks a member of a clique that it has others of: who sends what
  // to whom. The answer is the same in all processes. Then members that are not here are
  // Cliques::kElsewhere, and `folded` is empty.
  std::shared_ptr<const CrossTable> cross;
  std::vector<Site> sites;
  std::vector<Slot> slots;             // by site
  std::vector<std::uint32_t> site_of;  // by position
  std::vector<std::uint32_t> slot_of;  // by position
  // All of them, whatever the operand varies over: [clique][rank] -> position. Each position is in
  // one.
  std::vector<std::vector<std::uint32_t>> cliques;
};

// `varying`: the mask of mesh axes over which the operand varies. axes: names, all of them the
// mesh's.
const CliqueTable& clique_table(const detail::MeshImpl& mesh, const std::vector<std::string>& axes,
                                const Groups& groups, std::uint32_t varying);
const CliqueTable& clique_table(const detail::MeshImpl& mesh, const std::vector<int>& axes,
                                const Groups& groups, std::uint32_t varying);

}  // namespace shmap
