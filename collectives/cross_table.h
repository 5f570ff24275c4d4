// CrossTable: who sends what to whom in a collective whose cliques leave the process.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/clique_table.h"

namespace shmap {

// Made with its CliqueTable, and kept as long. All processes of a mesh make tables that fit each
// other, without talking: from the mesh alone.
struct CrossTable {
  // Another process that has ranks of the same class.
  struct Peer {
    int process;
    std::vector<std::uint32_t> held;   // the ranks that it has itself, ascending
    std::vector<std::uint32_t> gives;  // what it gets from this process, in the order of reductions
    std::vector<std::uint32_t> takes;  // what this process gets from it, likewise
  };
  // Cliques that hold the same values, one of which does the work for all.
  struct Class {
    std::vector<std::uint32_t> local;   // rank -> local position, or Cliques::kElsewhere
    std::vector<std::uint32_t> held;    // the ranks that are here, ascending
    std::vector<std::uint32_t> folded;  // the ranks in mesh order: the order of reductions
    // As many ranks in a row of that order, from a multiple on, are in one process, and there are
    // 2^k of them and of all: then its sum of them is a part of the tree. 1 where it is not so.
    std::uint32_t run = 1;
    std::vector<int> processes;        // that have ranks, ascending
    bool even = false;                 // each of them talks to all others of them, and nobody else
    std::size_t own = 0;               // this one among them
    std::vector<Peer> peers;           // the others
    std::vector<std::uint32_t> sites;  // of the CliqueTable
  };
  // One clique, of those of which some ranks are here.
  struct Clique {
    std::uint32_t index = 0;           // among CliqueTable::cliques
    std::int64_t first = 0;            // the least place of its devices in the whole mesh: its name
    std::vector<int> process;          // by rank
    std::vector<std::uint32_t> order;  // the ranks in mesh order: the order of reductions
  };
  std::vector<Clique> cliques;  // in an order that all processes share
  std::vector<int> partners;    // the other processes of these, ascending
  std::vector<Class> classes;   // those with local devices, in an order that all processes share
  std::string axes;             // "('i', 'j')"
  std::uint64_t key = 0;        // of axes and groups: the same in all processes
};

// Null where no process lacks a rank of a class of which it has others. places: of each rank over
// the axes its group and the rank in that; rest: the other axes over which the operand varies.
std::shared_ptr<const CrossTable> make_cross_table(
    const detail::MeshImpl& mesh, const CliqueTable& table,
    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& places, std::uint32_t rest);

}  // namespace shmap
