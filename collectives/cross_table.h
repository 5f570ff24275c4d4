// CrossTable: what each process sends to which other one in a collective whose cliques span
// processes.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/clique_table.h"

namespace shmap {

// Made with its CliqueTable, and kept as long. Each process makes its own tables from the mesh
// alone, without communication; the tables of all processes are consistent.
struct CrossTable {
  // Another process that has ranks of the same class.
  struct Peer {
    int process;
    std::vector<std::uint32_t> held;  // the ranks of that process, ascending
    // In reduction order: the ranks whose blocks the peer gets from this process, and those whose
    // blocks this process gets from the peer.
    std::vector<std::uint32_t> gives;
    std::vector<std::uint32_t> takes;
  };
  // The cliques that have equal values; one of them does the work for all.
  struct Class {
    std::vector<std::uint32_t> local;   // rank -> local position, or Cliques::kElsewhere
    std::vector<std::uint32_t> held;    // the ranks of this process, ascending
    std::vector<std::uint32_t> folded;  // the ranks in mesh order, which is the reduction order
    std::vector<std::uint32_t> place;   // rank -> its index in `folded`
    // A number of ranks, consecutive in the reduction order and beginning at a multiple of `run`,
    // that are all in one process. Where the number of all ranks and `run` are powers of two, the
    // sum of such a run is a subtree of the reduction. 1 where there are no such runs.
    std::uint32_t run = 1;
    // Ascending: where `even`, the processes of this process's clique, else all that have ranks.
    std::vector<int> processes;
    // Whether cliques have equal or disjoint sets of processes, so that the processes of a clique
    // exchange blocks among themselves alone.
    bool even = false;
    std::size_t own = 0;                 // the index of this process in `processes`
    std::vector<Peer> peers;             // the other processes
    std::vector<std::uint32_t> targets;  // of the CliqueTable
  };
  // A clique that has ranks in this process.
  struct Clique {
    std::uint32_t index = 0;           // in CliqueTable::cliques
    std::int64_t first = 0;            // the least mesh position of its devices, its id
    std::vector<int> process;          // the process of each rank
    std::vector<std::uint32_t> order;  // the ranks in mesh order, which is the reduction order
  };
  std::vector<Clique> cliques;  // in the same order in all processes
  std::vector<int> partners;    // the other processes of these cliques, ascending
  std::vector<Class> classes;   // the classes with local devices, in the same order in all
                                // processes
  std::string axes;             // "('i', 'j')"
  std::uint64_t key = 0;        // a hash of axes, groups and way, the same in all processes
  // What the table was made of, besides the axes, and the way (collectives/ways.h) of which it is
  // the part; 0: the table is whole.
  Groups groups;
  std::uint32_t rest = 0;
  std::uint64_t way = 0;
};

// Null where every class has all its ranks in one process. places: for each rank over the axes its
// group, and its rank in that group; rest: the other axes over which the operand varies.
std::shared_ptr<const CrossTable> make_cross_table(
    const detail::MeshImpl& mesh, const CliqueTable& table,
    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& places, const Groups& groups,
    std::uint32_t rest);

}  // namespace shmap
