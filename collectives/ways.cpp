#include "collectives/ways.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "collectives/cross_table.h"
#include "collectives/in_process.h"
#include "core/base/hash_text.h"
#include "core/ir/divergence.h"
#include "core/ir/trace.h"
#include "core/processes/exchanges.h"
#include "core/processes/processes.h"
#include "core/runtime/collective_numbers.h"
#include "core/runtime/launch.h"

namespace shmap {

namespace {

constexpr std::uint32_t kElsewhere = Cliques::kElsewhere;

// A way with local devices, and the part of a table that is about its devices.
struct Way {
  std::vector<std::uint32_t> positions;
  CliqueTable table;
};

// Makes the part of `whole` for the devices at these positions, which has targets, classes and
// cliques of its own: in `whole` none is of several ways.
class PartBuilder {
 public:
  PartBuilder(const detail::MeshImpl& mesh, const CliqueTable& whole, std::uint64_t way,
              const std::vector<std::uint32_t>& positions)
      : mesh_(mesh), whole_(whole), way_(way), inside_(mesh.local_count(), false) {
    for (const std::uint32_t p : positions) inside_[p] = true;
  }

  CliqueTable build() {
    part_.axes = whole_.axes;
    part_.ranks = whole_.ranks;
    add_targets();
    for (const std::vector<std::uint32_t>& team : whole_.teams)
      if (contains_target(team.front())) part_.teams.push_back(renumbered(team));
    for (std::uint32_t p = 0; p < mesh_.local_count(); ++p) {
      part_.target_of.push_back(inside_[p] ? target_[whole_.target_of[p]] : kElsewhere);
      part_.rank_block_of.push_back(inside_[p] ? block_[whole_.rank_block_of[p]] : kElsewhere);
    }
    add_cross();
    return std::move(part_);
  }

 private:
  void add_targets() {
    target_.assign(whole_.targets.size(), kElsewhere);
    block_.assign(whole_.rank_blocks.size(), kElsewhere);
    for (std::uint32_t s = 0; s < whole_.targets.size(); ++s) {
      CliqueTable::Target target = whole_.targets[s];
      if (!inside_[target.position]) continue;
      target_[s] = static_cast<std::uint32_t>(part_.targets.size());
      const std::uint32_t first = target.first_block;
      target.first_block = static_cast<std::uint32_t>(part_.rank_blocks.size());
      for (std::uint32_t k = first; k < first + target.block_count; ++k) {
        block_[k] = static_cast<std::uint32_t>(part_.rank_blocks.size());
        part_.rank_blocks.push_back(whole_.rank_blocks[k]);
        part_.rank_blocks.back().target = target_[s];
      }
      part_.targets.push_back(std::move(target));
    }
  }

  void add_cross() {
    const CrossTable& whole = *whole_.cross;
    CrossTable cross;
    for (const CrossTable::Class& c : whole.classes) {
      if (!contains_target(c.targets.front())) continue;
      cross.classes.push_back(c);
      cross.classes.back().targets = renumbered(c.targets);
    }
    std::set<int> partners;
    for (const CrossTable::Clique& clique : whole.cliques) {
      const std::vector<std::uint32_t>& members = whole_.cliques[clique.index];
      const auto here =
          std::ranges::find_if(members, [](std::uint32_t p) { return p != kElsewhere; });
      if (!inside_[*here]) continue;
      cross.cliques.push_back(clique);
      cross.cliques.back().index = static_cast<std::uint32_t>(part_.cliques.size());
      part_.cliques.push_back(members);
      partners.insert(clique.process.begin(), clique.process.end());
    }
    partners.erase(mesh_.devices()
                       .values()[static_cast<std::size_t>(mesh_.global_position(0))]
                       .process_index());
    cross.partners.assign(partners.begin(), partners.end());
    cross.axes = whole.axes;
    cross.key = HashText().add(whole.key).add(way_).value();
    cross.groups = whole.groups;
    cross.rest = whole.rest;
    cross.way = way_;
    part_.cross = std::make_shared<const CrossTable>(std::move(cross));
  }

  bool contains_target(std::uint32_t s) const { return target_[s] != kElsewhere; }
  std::vector<std::uint32_t> renumbered(std::vector<std::uint32_t> targets) const {
    for (std::uint32_t& s : targets) s = target_[s];
    return targets;
  }

  const detail::MeshImpl& mesh_;
  const CliqueTable& whole_;
  const std::uint64_t way_;
  std::vector<bool> inside_;                   // by position
  std::vector<std::uint32_t> target_, block_;  // of `whole` -> of the part
  CliqueTable part_;
};

std::vector<Way> make_ways(const detail::MeshImpl& mesh, const CliqueTable& table,
                           std::uint32_t divergent) {
  std::map<std::vector<std::int64_t>, Way> ways;  // by the coordinates on these axes
  for (std::uint32_t p = 0; p < mesh.local_count(); ++p) {
    std::vector<std::int64_t> at;
    for (int axis = 0; axis < static_cast<int>(mesh.env()->sizes.size()); ++axis)
      if (divergent >> axis & 1u) at.push_back(mesh.coordinate(p, axis));
    ways[at].positions.push_back(p);
  }
  std::vector<Way> made;
  for (auto& [at, way] : ways) {
    const std::uint64_t name = way_of(mesh, divergent, way.positions.front());
    way.table = PartBuilder(mesh, table, name, way.positions).build();
    made.push_back(std::move(way));
  }
  return made;
}

// Made once for each table and mask, and kept as long as tables are.
const std::vector<Way>& ways_of(const detail::MeshImpl& mesh, const CliqueTable& table,
                                std::uint32_t divergent) {
  static std::mutex mutex;
  static auto* all =
      new std::map<std::pair<const CliqueTable*, std::uint32_t>, const std::vector<Way>*>();
  std::lock_guard lock(mutex);
  const std::vector<Way>*& entry = (*all)[{&table, divergent}];
  if (entry == nullptr) entry = new std::vector<Way>(make_ways(mesh, table, divergent));
  return *entry;
}

// Whether the ranks of a clique get results of their own.
bool by_rank(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::broadcast:
      return false;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
    case CollectiveKind::permute:
      return true;
  }
  return true;
}

Block zeros(const GroupBlocks& g, std::uint32_t position) {
  const LocalDevice& device = g.mesh.local(position);
  Block block;
  block.buffer = device.space->allocate(g.out_bytes, MemorySpace::For::tasks);
  if (g.out_bytes == 0) return block;
  LaunchSpec at;
  at.stream = device.comm;
  at.name = g.primitive.name;
  at.bytes = g.out_bytes;
  Buffer* const writes[] = {block.buffer.get()};
  launch(at, {}, writes,
         [ops = &device_ops(g.mesh.backend()), to = static_cast<std::byte*>(block.data()),
          bytes = g.out_bytes](int, int, void* native) { ops->zero(to, bytes, native); });
  return block;
}

// Sets the results of the devices that have none. Those of one target are equal, or those of one
// rank of it.
void give_inactive(const GroupBlocks& g, bool of_ranks) {
  std::lock_guard lock(g.mesh.backend().submit_mutex());
  const CliqueTable& table = g.cliques;
  std::vector<std::uint32_t> class_of(table.targets.size());
  for (std::uint32_t c = 0; c < table.cross->classes.size(); ++c)
    for (const std::uint32_t s : table.cross->classes[c].targets) class_of[s] = c;
  using Value = std::pair<std::uint32_t, std::uint32_t>;  // class, and rank or 0
  const auto value_of = [&](std::uint32_t p) {
    const std::uint32_t s = table.target_of[p];
    return Value(class_of[s], of_ranks ? table.rank_blocks[table.rank_block_of[p]].rank : 0);
  };
  std::map<Value, std::uint32_t> active;                         // -> a device that has it
  std::map<std::pair<Value, const MemorySpace*>, Block> blocks;  // in each memory space
  for (std::uint32_t p = 0; p < g.out.size(); ++p) {
    if (!g.out[p].buffer) continue;
    active.emplace(value_of(p), p);
    blocks.emplace(std::pair(value_of(p), g.mesh.local(p).space), g.out[p]);
  }
  for (std::uint32_t p = 0; p < g.out.size(); ++p) {
    if (g.out[p].buffer) continue;
    Block& block = blocks[{value_of(p), g.mesh.local(p).space}];
    if (!block.buffer) {
      const auto from = active.find(value_of(p));
      block = from == active.end() ? zeros(g, p)
                                   : copy_to_space(g, g.out[from->second], from->second, p);
    }
    g.out[p] = block;
  }
}

// To be called where the call cannot end although it has begun for some ways: the other processes
// of these ways go on, and a second try would meet their next collective.
void fail_job(const GroupBlocks& g, const char* why) {
  Processes& job = *Processes::joined();
  job.exchanges().report(job.peers().text(job.rank()) + " cannot go on with " + g.primitive.name +
                         at_line(g.source) +
                         ", which it has begun for some of its devices in this branch: " + why);
}

// Calls verb(communicator, blocks) for each active way.
template <class Verb>
void in_each_way(const GroupBlocks& g, CollectiveKind kind, const Verb& verb) {
  const std::uint32_t divergent = divergent_axes(g.mesh);
  // With classes that are of one way each.
  const CrossTable& cross = *g.cliques.cross;
  const CliqueTable& table =
      clique_table(g.mesh, g.cliques.axes, cross.groups, cross.rest | divergent);
  const auto call = [&](const CliqueTable& cliques, std::span<Block> out) {
    const GroupBlocks part{g.mesh,      cliques, g.in,        out,      g.in_bytes,
                           g.out_bytes, g.dtype, g.primitive, g.source, g.number};
    verb(communicator(part, kind), part);
  };
  if (table.cross == nullptr) return call(table, g.out);
  bool begun = false;
  try {
    for (const Way& way : ways_of(g.mesh, table, divergent)) {
      if (!is_active_device(way.positions.front())) continue;
      std::vector<Block> out(g.out.size());
      call(way.table, out);
      begun = true;
      for (const std::uint32_t p : way.positions) g.out[p] = std::move(out[p]);
    }
    give_inactive(g, by_rank(kind));
  } catch (const std::exception& e) {
    if (begun && !capturing()) fail_job(g, e.what());
    throw;
  }
}

}  // namespace

void EachWay::all_reduce(const GroupBlocks& g, Reduction op, DType dtype) {
  in_each_way(g, CollectiveKind::all_reduce,
              [&](Communicator& by, const GroupBlocks& part) { by.all_reduce(part, op, dtype); });
}

void EachWay::all_gather(const GroupBlocks& g, const Interleaved& parts) {
  in_each_way(g, CollectiveKind::all_gather,
              [&](Communicator& by, const GroupBlocks& part) { by.all_gather(part, parts); });
}

void EachWay::reduce_scatter(const GroupBlocks& g, const Interleaved& parts, Reduction op,
                             DType dtype) {
  in_each_way(g, CollectiveKind::reduce_scatter, [&](Communicator& by, const GroupBlocks& part) {
    by.reduce_scatter(part, parts, op, dtype);
  });
}

void EachWay::all_to_all(const GroupBlocks& g, const Exchange& exchange) {
  in_each_way(g, CollectiveKind::all_to_all,
              [&](Communicator& by, const GroupBlocks& part) { by.all_to_all(part, exchange); });
}

void EachWay::permute(const GroupBlocks& g, std::span<const int> source) {
  in_each_way(g, CollectiveKind::permute,
              [&](Communicator& by, const GroupBlocks& part) { by.permute(part, source); });
}

void EachWay::broadcast(const GroupBlocks& g, std::uint32_t rank) {
  in_each_way(g, CollectiveKind::broadcast,
              [&](Communicator& by, const GroupBlocks& part) { by.broadcast(part, rank); });
}

}  // namespace shmap
