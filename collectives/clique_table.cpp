#include "collectives/clique_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>

#include "collectives/cross_table.h"
#include "core/base/inline_vector.h"

namespace shmap {

namespace {

using CliqueKey = std::tuple<const detail::MeshImpl*, std::vector<int>, Groups, std::uint32_t>;
constexpr std::uint32_t kNone = Cliques::kElsewhere;

class CliqueTableBuilder {
 public:
  CliqueTableBuilder(const detail::MeshImpl& mesh, const std::vector<int>& axes,
                     const Groups& groups, std::uint32_t varying)
      : mesh_(mesh), cliques_(mesh.cliques(axes)), axes_(axes), groups_(groups) {
    std::uint32_t own = 0;
    for (int a : axes) own |= 1u << a;
    rest_ = varying & ~own;
    table_.axes = axes;
    find_ranks();
  }

  CliqueTable build() {
    for (std::uint32_t p = 0; p < mesh_.local_count(); ++p) place(p);
    make_rank_blocks();
    for (CliqueTable::Target& target : table_.targets) make_members(target);
    make_teams();
    list_cliques();
    if (!mesh_.fully_addressable()) {
      std::vector<std::pair<std::uint32_t, std::uint32_t>> places;
      for (const Rank& r : ranks_) places.emplace_back(r.group, r.rank);
      table_.cross = make_cross_table(mesh_, table_, places, groups_, rest_);
    }
    return std::move(table_);
  }

 private:
  // The group and the rank in it of a rank over the axes.
  struct Rank {
    std::uint32_t group, rank;
  };

  void find_ranks() {
    const std::size_t all = cliques_.members.front().size();
    if (groups_.empty()) {
      for (std::uint32_t r = 0; r < all; ++r) ranks_.push_back({0, r});
      table_.ranks = static_cast<std::uint32_t>(all);
      return;
    }
    ranks_.resize(all);
    for (std::uint32_t g = 0; g < groups_.size(); ++g)
      for (std::uint32_t r = 0; r < groups_[g].size(); ++r)
        ranks_[static_cast<std::size_t>(groups_[g][r])] = {g, r};
    table_.ranks = static_cast<std::uint32_t>(groups_.front().size());
  }

  Rank rank_of(std::uint32_t p) const { return ranks_[cliques_.rank_of[p]]; }

  // The number of the class of p: cliques of one class hold equal values.
  std::uint32_t class_of(std::uint32_t p) {
    std::vector<std::int64_t> key{rank_of(p).group};
    for (int a = 0; a < static_cast<int>(mesh_.env()->sizes.size()); ++a)
      if (rest_ >> a & 1u) key.push_back(mesh_.coordinate(p, a));
    const auto [it, fresh] = classes_.emplace(std::move(key), classes_.size());
    if (fresh) anywhere_.emplace_back(table_.ranks, kNone);
    return static_cast<std::uint32_t>(it->second);
  }

  void place(std::uint32_t p) {
    const LocalDevice& device = mesh_.local(p);
    const std::uint32_t c = class_of(p), rank = rank_of(p).rank;
    const auto [it, fresh] = targets_.emplace(std::pair(c, device.space), table_.targets.size());
    if (fresh) {
      table_.targets.push_back(
          {device.space, p, std::vector<std::uint32_t>(table_.ranks, kNone), {}, 0, 0});
      class_of_target_.push_back(c);
    }
    const auto target = static_cast<std::uint32_t>(it->second);
    table_.target_of.push_back(target);
    std::uint32_t& member = table_.targets[target].members[rank];
    if (member == kNone) member = p;
    std::uint32_t& any = anywhere_[c][rank];
    if (any == kNone) any = p;
  }

  // Makes a RankBlock for each local member of a target. Members that are missing are in other
  // memory spaces.
  void make_rank_blocks() {
    std::vector<std::vector<std::uint32_t>> number(table_.targets.size());
    for (std::uint32_t s = 0; s < table_.targets.size(); ++s) {
      CliqueTable::Target& target = table_.targets[s];
      target.first_block = static_cast<std::uint32_t>(table_.rank_blocks.size());
      for (std::uint32_t r = 0; r < table_.ranks; ++r) {
        number[s].push_back(static_cast<std::uint32_t>(table_.rank_blocks.size()));
        if (target.members[r] != kNone) table_.rank_blocks.push_back({s, r, target.members[r]});
      }
      target.block_count =
          static_cast<std::uint32_t>(table_.rank_blocks.size()) - target.first_block;
    }
    for (std::uint32_t p = 0; p < mesh_.local_count(); ++p)
      table_.rank_block_of.push_back(number[table_.target_of[p]][rank_of(p).rank]);
  }

  void make_members(CliqueTable::Target& target) {
    const std::size_t s = static_cast<std::size_t>(&target - table_.targets.data());
    for (std::uint32_t r = 0; r < table_.ranks; ++r)
      if (target.members[r] == kNone) target.members[r] = anywhere_[class_of_target_[s]][r];
    if (std::find(target.members.begin(), target.members.end(), kNone) != target.members.end())
      return;
    std::vector<std::uint32_t>& order = orders_[class_of_target_[s]];
    if (order.empty()) order = in_mesh_order(target.members);
    for (const std::uint32_t r : order) target.folded.push_back(target.members[r]);
  }

  // The ranks in mesh order. Compares coordinates on the collective's axes only: members of other
  // cliques of the class may replace members of this one.
  std::vector<std::uint32_t> in_mesh_order(const std::vector<std::uint32_t>& members) const {
    std::vector<int> axes = axes_;
    std::sort(axes.begin(), axes.end());
    std::vector<std::uint32_t> order(table_.ranks);
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      for (int axis : axes) {
        const std::int64_t x = mesh_.coordinate(members[a], axis),
                           y = mesh_.coordinate(members[b], axis);
        if (x != y) return x < y;
      }
      return false;
    });
    return order;
  }

  void make_teams() {
    std::map<std::pair<std::uint32_t, int>, std::size_t> known;
    for (std::uint32_t s = 0; s < table_.targets.size(); ++s) {
      const int index = mesh_.local(table_.targets[s].position).index;
      const std::pair key(class_of_target_[s], mesh_.backend().native_number(index));
      const auto [it, fresh] = known.emplace(key, table_.teams.size());
      if (fresh) table_.teams.emplace_back();
      table_.teams[it->second].push_back(s);
    }
  }

  void list_cliques() {
    const std::size_t groups = std::max<std::size_t>(groups_.size(), 1);
    table_.cliques.assign(cliques_.members.size() * groups,
                          std::vector<std::uint32_t>(table_.ranks, kNone));
    for (std::uint32_t p = 0; p < mesh_.local_count(); ++p) {
      const Rank rank = rank_of(p);
      table_.cliques[cliques_.clique_of[p] * groups + rank.group][rank.rank] = p;
    }
  }

  const detail::MeshImpl& mesh_;
  const Cliques& cliques_;
  const std::vector<int>& axes_;
  const Groups& groups_;
  std::uint32_t rest_;
  std::vector<Rank> ranks_;
  CliqueTable table_;
  std::map<std::vector<std::int64_t>, std::size_t> classes_;
  std::map<std::pair<std::uint32_t, MemorySpace*>, std::size_t> targets_;
  std::vector<std::uint32_t> class_of_target_;
  std::vector<std::vector<std::uint32_t>> anywhere_;            // [class][rank] -> a position
  std::map<std::uint32_t, std::vector<std::uint32_t>> orders_;  // class -> its ranks in mesh order
};

const CliqueTable& find_or_build(const detail::MeshImpl& mesh, const std::vector<int>& axes,
                                 const Groups& groups, std::uint32_t varying) {
  static std::mutex mutex;
  // Never destroyed, as meshes are not.
  static auto* tables = new std::map<CliqueKey, const CliqueTable*>();
  std::lock_guard lock(mutex);
  const CliqueTable*& entry = (*tables)[CliqueKey(&mesh, axes, groups, varying)];
  if (entry == nullptr)
    entry = new CliqueTable(CliqueTableBuilder(mesh, axes, groups, varying).build());
  return *entry;
}

// The tables that this thread used last, by a hash: an eager loop needs neither the lock nor the
// heap.
struct Recent {
  const detail::MeshImpl* mesh = nullptr;
  std::uint64_t axes = 0;
  std::uint32_t varying = 0;
  const CliqueTable* table = nullptr;
};
constexpr std::size_t kRecent = 16;
thread_local std::array<Recent, kRecent> recent;

// Up to ten axis numbers below 62 in one word; 0 where they do not fit.
std::uint64_t pack(const int* axes, std::size_t n) {
  if (n > 10) return 0;
  std::uint64_t word = 1;
  for (std::size_t i = 0; i < n; ++i) word = word << 6 | static_cast<std::uint64_t>(axes[i] + 1);
  return word;
}

const CliqueTable& look_up(const detail::MeshImpl& mesh, const int* axes, std::size_t n,
                           const Groups& groups, std::uint32_t varying) {
  const std::uint64_t word = groups.empty() ? pack(axes, n) : 0;
  if (word == 0) return find_or_build(mesh, std::vector<int>(axes, axes + n), groups, varying);
  const std::uint64_t hash =
      (reinterpret_cast<std::uintptr_t>(&mesh) / 64 + word * 31 + varying * 7) *
      0x9E3779B97F4A7C15u;
  Recent& r = recent[hash >> 60];
  if (r.mesh == &mesh && r.axes == word && r.varying == varying) return *r.table;
  const CliqueTable& table = find_or_build(mesh, std::vector<int>(axes, axes + n), groups, varying);
  r = {&mesh, word, varying, &table};
  return table;
}

}  // namespace

const CliqueTable& clique_table(const detail::MeshImpl& mesh, const std::vector<int>& axes,
                                const Groups& groups, std::uint32_t varying) {
  return look_up(mesh, axes.data(), axes.size(), groups, varying);
}

const CliqueTable& clique_table(const detail::MeshImpl& mesh, const std::vector<std::string>& axes,
                                const Groups& groups, std::uint32_t varying) {
  InlineVector<int, 8> indices(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) indices[i] = mesh.env()->find(axes[i]);
  return look_up(mesh, indices.data(), axes.size(), groups, varying);
}

}  // namespace shmap
