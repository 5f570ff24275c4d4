#include "collectives/cross_table.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "core/base/hash_text.h"
#include "shmap/axes.h"

namespace shmap {

namespace {

using CrossKey = std::vector<std::int64_t>;

// The positions of a class: for each rank, the processes that have it, and one of its positions.
struct Holders {
  std::vector<std::set<int>> processes;
  std::vector<std::int64_t> position;
  // For each process: the processes, by rank, of the clique of its first position.
  std::map<int, const std::vector<int>*> clique;
  std::map<int, std::vector<std::uint32_t>> held;  // for each process: its ranks, ascending
};

class CrossTableBuilder {
 public:
  CrossTableBuilder(const detail::MeshImpl& mesh, const CliqueTable& table,
                    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& places,
                    std::uint32_t rest)
      : mesh_(mesh), table_(table), places_(places), rest_(rest) {
    for (std::int64_t g = 0; g < mesh.size(); ++g) {
      Holders& h = holders_[key_of(g)];
      h.processes.resize(table.ranks);
      h.position.resize(table.ranks);
      const std::uint32_t rank = rank_of(g).second;
      h.processes[rank].insert(process_of(g));
      h.position[rank] = g;
      std::vector<int>& clique = cliques_[clique_key_of(g)];
      clique.resize(table.ranks);
      clique[rank] = process_of(g);
      std::vector<std::int64_t>& places = clique_places_[clique_key_of(g)];
      places.resize(table.ranks);
      places[rank] = g;
    }
    for (std::int64_t g = 0; g < mesh.size(); ++g)
      holders_[key_of(g)].clique.try_emplace(process_of(g), &cliques_.at(clique_key_of(g)));
    for (auto& [key, h] : holders_)
      for (std::uint32_t r = 0; r < table.ranks; ++r)
        for (const int process : h.processes[r]) h.held[process].push_back(r);
  }

  bool crosses() const {
    for (const auto& [key, h] : holders_) {
      const std::size_t all = h.held.size();
      for (const std::set<int>& some : h.processes)
        if (some.size() != all) return true;
    }
    return false;
  }

  CrossTable build() {
    CrossTable cross;
    std::map<CrossKey, std::size_t> number;
    for (std::uint32_t p = 0; p < mesh_.local_count(); ++p)
      number.emplace(key_of(mesh_.global_position(p)), 0);
    for (auto& [key, index] : number) {
      index = cross.classes.size();
      cross.classes.push_back(make_class(holders_.at(key)));
    }
    for (std::uint32_t p = mesh_.local_count(); p-- > 0;) {
      const std::int64_t g = mesh_.global_position(p);
      cross.classes[number.at(key_of(g))].local[rank_of(g).second] = p;
    }
    for (std::uint32_t s = 0; s < table_.targets.size(); ++s) {
      const std::int64_t g = mesh_.global_position(table_.targets[s].position);
      cross.classes[number.at(key_of(g))].targets.push_back(s);
    }
    add_cliques(cross);
    std::vector<std::string> names;
    HashText hash;
    for (int a : table_.axes) {
      names.push_back(mesh_.env()->names[static_cast<std::size_t>(a)]);
      hash.add(names.back());
    }
    for (const auto& [group, rank] : places_) hash.add(group).add(rank);
    cross.axes = to_string(Axes(names));
    cross.key = hash.value();
    return cross;
  }

 private:
  int process_of(std::int64_t g) const {
    return mesh_.devices().values()[static_cast<std::size_t>(g)].process_index();
  }
  const std::pair<std::uint32_t, std::uint32_t>& rank_of(std::int64_t g) const {
    std::int64_t rank = 0;
    for (int a : table_.axes)
      rank = rank * mesh_.env()->sizes[static_cast<std::size_t>(a)] + mesh_.coordinate_at(g, a);
    return places_[static_cast<std::size_t>(rank)];
  }
  CrossKey key_of(std::int64_t g) const {
    CrossKey key{rank_of(g).first};
    for (int a = 0; a < static_cast<int>(mesh_.env()->sizes.size()); ++a)
      if (rest_ >> a & 1u) key.push_back(mesh_.coordinate_at(g, a));
    return key;
  }
  CrossKey clique_key_of(std::int64_t g) const {
    CrossKey key{rank_of(g).first};
    for (int a = 0; a < static_cast<int>(mesh_.env()->sizes.size()); ++a)
      if (std::find(table_.axes.begin(), table_.axes.end(), a) == table_.axes.end())
        key.push_back(mesh_.coordinate_at(g, a));
    return key;
  }
  // Ascending.
  static std::vector<int> participants(const Holders& h) {
    std::vector<int> all;
    for (const auto& [process, ranks] : h.held) all.push_back(process);
    return all;
  }

  void add_cliques(CrossTable& cross) const {
    std::set<int> partners;
    for (std::uint32_t i = 0; i < table_.cliques.size(); ++i) {
      const std::vector<std::uint32_t>& members = table_.cliques[i];
      const auto here = std::find_if(members.begin(), members.end(),
                                     [](std::uint32_t p) { return p != Cliques::kElsewhere; });
      if (here == members.end()) continue;
      const CrossKey key = clique_key_of(mesh_.global_position(*here));
      const std::vector<std::int64_t>& places = clique_places_.at(key);
      CrossTable::Clique clique{i, *std::min_element(places.begin(), places.end()),
                                cliques_.at(key), in_mesh_order(places)};
      partners.insert(clique.process.begin(), clique.process.end());
      cross.cliques.push_back(std::move(clique));
    }
    std::sort(cross.cliques.begin(), cross.cliques.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    partners.erase(process_of(mesh_.global_position(0)));
    cross.partners.assign(partners.begin(), partners.end());
  }

  // The ranks, ordered by their coordinates on the collective's axes.
  std::vector<std::uint32_t> in_mesh_order(const std::vector<std::int64_t>& places) const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t r = 0; r < places.size(); ++r) order.push_back(r);
    std::vector<int> axes = table_.axes;
    std::sort(axes.begin(), axes.end());
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      for (int axis : axes) {
        const std::int64_t x = mesh_.coordinate_at(places[a], axis),
                           y = mesh_.coordinate_at(places[b], axis);
        if (x != y) return x < y;
      }
      return false;
    });
    return order;
  }

  CrossTable::Class make_class(const Holders& h) const {
    CrossTable::Class c;
    const std::uint32_t n = table_.ranks;
    const int self = process_of(mesh_.global_position(0));
    c.even = is_even(h);
    // The processes of this process's clique, if all processes of each clique find the same ones.
    c.processes = c.even ? team_of(*h.clique.at(self)) : participants(h);
    c.own = static_cast<std::size_t>(std::find(c.processes.begin(), c.processes.end(), self) -
                                     c.processes.begin());
    c.local.assign(n, Cliques::kElsewhere);
    c.folded = in_mesh_order(h.position);
    c.place.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) c.place[c.folded[i]] = i;
    c.held = h.held.at(self);
    c.run = run_of(h, c);
    for (const int process : c.processes)
      if (process != self) c.peers.push_back({process, h.held.at(process), {}, {}});
    add_parcels(h, self, c);
    return c;
  }

  static std::vector<int> team_of(const std::vector<int>& clique) {
    std::vector<int> team = clique;
    std::sort(team.begin(), team.end());
    team.erase(std::unique(team.begin(), team.end()), team.end());
    return team;
  }

  // Whether all processes of the first clique of each process have first cliques of the same
  // processes. Most processes have one clique in common, which is looked at once.
  static bool is_even(const Holders& h) {
    std::map<const std::vector<int>*, std::vector<int>> teams;
    for (const auto& [process, clique] : h.clique)
      if (teams.count(clique) == 0) teams.emplace(clique, team_of(*clique));
    return std::all_of(teams.begin(), teams.end(), [&](const auto& entry) {
      const auto& [clique, team] = entry;
      return std::all_of(team.begin(), team.end(), [&, c = clique, &t = team](int q) {
        const std::vector<int>* other = h.clique.at(q);
        return other == c || teams.at(other) == t;
      });
    });
  }

  // Sets what this process gives to its peers, and takes from them. A process that lacks a rank
  // gets its block from a member of the same clique: other cliques with equal values may be at
  // another point of the program, if devices take different ways.
  static void add_parcels(const Holders& h, int self, CrossTable::Class& c) {
    const std::vector<int>& own = *h.clique.at(self);
    std::map<int, CrossTable::Peer*> peer_of;
    for (CrossTable::Peer& peer : c.peers) peer_of.emplace(peer.process, &peer);
    for (std::uint32_t i = 0; i < c.folded.size(); i += c.run) {
      const std::uint32_t rank = c.folded[i];
      const std::set<int>& holders = h.processes[rank];
      if (holders.count(self) == 0) {
        if (const auto from = peer_of.find(own[rank]); from != peer_of.end())
          add_run(c, i, from->second->takes);
        continue;
      }
      for (CrossTable::Peer& peer : c.peers)
        if (holders.count(peer.process) == 0 && (*h.clique.at(peer.process))[rank] == self)
          add_run(c, i, peer.gives);
    }
  }

  static void add_run(const CrossTable::Class& c, std::uint32_t first,
                      std::vector<std::uint32_t>& to) {
    to.insert(to.end(), c.folded.begin() + first, c.folded.begin() + first + c.run);
  }

  static std::uint32_t run_of(const Holders& h, const CrossTable::Class& c) {
    const std::size_t n = c.folded.size(), run = c.held.size();
    if (!std::has_single_bit(n) || !std::has_single_bit(run)) return 1;
    for (std::size_t i = 0; i < n; ++i)
      if (h.processes[c.folded[i]] != h.processes[c.folded[i / run * run]]) return 1;
    for (const int process : c.processes)
      if (h.held.at(process).size() != run) return 1;
    return static_cast<std::uint32_t>(run);
  }

  const detail::MeshImpl& mesh_;
  const CliqueTable& table_;
  const std::vector<std::pair<std::uint32_t, std::uint32_t>>& places_;
  const std::uint32_t rest_;
  std::map<CrossKey, Holders> holders_;
  std::map<CrossKey, std::vector<int>> cliques_;  // the processes by rank
  std::map<CrossKey, std::vector<std::int64_t>> clique_places_;
};

}  // namespace

std::shared_ptr<const CrossTable> make_cross_table(
    const detail::MeshImpl& mesh, const CliqueTable& table,
    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& places, const Groups& groups,
    std::uint32_t rest) {
  CrossTableBuilder builder(mesh, table, places, rest);
  if (!builder.crosses()) return nullptr;
  CrossTable cross = builder.build();
  cross.groups = groups;
  cross.rest = rest;
  return std::make_shared<const CrossTable>(std::move(cross));
}

}  // namespace shmap
