#include "core/compiler/fusion/fuse_clusters.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <utility>

#include "core/compiler/fusion/fused_from_fused.h"

namespace shmap {

namespace {

// Every thread computes all column values, so that their number is limited.
constexpr std::int64_t kColumns = 16 * 1024;
constexpr int kMostResults = 8;
constexpr int kMostDrawn = 24;  // equations from a draw to a value that is drawn again
// The most steps of a search for a cycle; a search that needs more counts as having found one.
constexpr int kSearch = 2000;
// After so many clusters that a value cannot join, no more of those that use the value are tried.
constexpr int kMostFailures = 64;

std::uint32_t bit(FusedKind kind) { return 1u << static_cast<int>(kind); }
constexpr std::uint32_t kRepeats = 1u << 4;  // in FuseCluster::needs
std::uint32_t bit(const FuseRead& read) { return read.repeats() ? kRepeats : bit(read.kind); }

bool has_room(const FuseCluster& x, std::size_t operands) {
  return x.ops < kMostFusedOps && x.needs.size() + operands <= kMostFusedOperands;
}

}  // namespace

FuseClusters::FuseClusters(const Jaxpr& jaxpr) : program_(jaxpr) {
  find_users();
  for (const Eqn& e : jaxpr.eqns) roles_.push_back(fuse_role(e));
  find_drawn();
  cluster_of_.assign(jaxpr.eqns.size(), -1);
  earliest_alone_.resize(jaxpr.eqns.size());
  std::iota(earliest_alone_.begin(), earliest_alone_.end(), 0);
  for (visited_ = program_.size(); visited_-- > 0;) visit(visited_);
}

int FuseClusters::cluster_of(int i) const {
  int c = cluster_of_[static_cast<std::size_t>(i)];
  while (c >= 0 && clusters_[static_cast<std::size_t>(c)].merged_into >= 0)
    c = clusters_[static_cast<std::size_t>(c)].merged_into;
  return c;
}

void FuseClusters::find_users() {
  users_.resize(static_cast<std::size_t>(program_.value_count()));
  const auto find = [&](const Var* v) {
    const std::span<const int> users = program_.users(v);
    users_of(v).assign(users.begin(), users.end());
  };
  for (const VarRef& v : program_.jaxpr().binders)
    if (program_.number(v.get()) >= 0) find(v.get());
  int last_ordered = -1;
  next_ordered_.assign(static_cast<std::size_t>(program_.size()), -1);
  previous_ordered_ = next_ordered_;
  for (int i = 0; i < program_.size(); ++i) {
    for (const VarRef& v : eqn(i).out) find(v.get());
    if (!is_ordered(eqn(i))) continue;
    if (last_ordered >= 0) next_ordered_[static_cast<std::size_t>(last_ordered)] = i;
    previous_ordered_[static_cast<std::size_t>(i)] = last_ordered;
    last_ordered = i;
  }
}

// Counts the equations behind values that are cheap to make again from random bits, such as a
// dropout mask: random bits, cheap operations on them, and scalars.
void FuseClusters::find_drawn() {
  for (int i = 0; i < program_.size(); ++i) {
    int n = role(i) == FuseRole::draw;
    const bool is_copy = role(i) == FuseRole::broadcast || role(i) == FuseRole::reshape;
    if (is_copy || (role(i) == FuseRole::map && !eqn(i).primitive->cost)) {
      bool all = true;
      for (const Atom& a : eqn(i).in) {
        if (a.is_literal() || a.type().size() == 1) continue;
        const int maker = program_.maker(a);
        const int drawn = maker < 0 ? 0 : drawn_[static_cast<std::size_t>(maker)];
        all &= drawn > 0;
        n += drawn;
      }
      n = all && n > 0 ? n + 1 : 0;
    }
    if (n > kMostDrawn) n = 0;
    drawn_.push_back(n);
  }
}

// True if each cluster that uses i's result should draw the random bits itself: the clusters cannot
// be merged (such as the forward and the backward pass of a layer with dropout), and the result
// would otherwise have to be stored.
bool FuseClusters::is_drawn_again(int i, const std::vector<int>& candidates) {
  const int n = drawn_[static_cast<std::size_t>(i)];
  if (n == 0 || candidates.size() < 2 || program_.is_result(result(i))) return false;
  for (int u : users_of(result(i)))
    if (cluster_of(u) < 0) return false;
  for (int c : candidates) {
    const FuseCluster& x = cluster(c);
    if (x.ops + n > kMostFusedOps || x.needs.size() + 4 > kMostFusedOperands) return false;
  }
  return reach_each_other(candidates);
}

// ------------------------------------------------------------------------------ clusters grow

void FuseClusters::visit(int i) {
  const FuseRole r = role(i);
  if (r == FuseRole::other) return;
  const Var* v = result(i);
  if (r == FuseRole::broadcast || r == FuseRole::reshape) return absorb_copies(i);
  if (r == FuseRole::draw) return absorb_draw(i);
  const std::vector<int>& users = users_of(v);
  if (users.empty() && !program_.is_result(v)) return;
  std::vector<int> candidates;  // clusters that use the result
  for (int u : users)
    if (const int c = cluster_of(u); c >= 0) candidates.push_back(c);
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  if (is_drawn_again(i, candidates)) return absorb_copies(i);
  int home = -1, failures = 0;
  for (int c : candidates) {
    // If a cluster stays apart from home, the value is also a result of home.
    const bool fits = home >= 0 ? unite(home, c, v) : join(i, c);
    if (fits && home < 0) home = c;
    failures += !fits;
    if (failures > kMostFailures) break;
  }
  if (home < 0) begin(i);
}

void FuseClusters::begin(int i) {
  FuseCluster c;
  c.first = c.earliest = i;
  c.axes = result(i)->type.axes();
  FusedKind kind = FusedKind::full;
  if (role(i) == FuseRole::reduce) {
    if (!reduced_space(eqn(i), &c.space)) return;
    c.split = true;
    kind = FusedKind::row;
  } else {
    c.space = {1, result(i)->type.size()};
  }
  clusters_.push_back(std::move(c));
  add_member(static_cast<int>(clusters_.size()) - 1, {i, kind});
}

void FuseClusters::add_member(int c, FuseMember m) {
  FuseCluster& x = cluster(c);
  const Eqn& e = eqn(m.eqn);
  x.members.push_back(m);
  x.ops += role(m.eqn) != FuseRole::reshape;
  x.draws |= role(m.eqn) == FuseRole::draw;
  if (!m.copy) cluster_of_[static_cast<std::size_t>(m.eqn)] = c;
  x.needs.erase(result(m.eqn));
  for (const Atom& a : e.in) {
    if (a.is_literal()) continue;
    x.needs[a.var()] |= bit(read_of(x, m, a));
    if (const int maker = program_.maker(a); maker >= 0) x.makers.push_back(maker);
  }
}

FuseRead FuseClusters::read_of(const FuseCluster& x, const FuseMember& m, const Atom& a) const {
  if (role(m.eqn) != FuseRole::broadcast)
    return {fuse_operand_kind(eqn(m.eqn), role(m.eqn), m.kind, a)};
  FuseRead read{FusedKind::full};
  broadcast_read(eqn(m.eqn), m.kind, x.split ? &x.space : nullptr, &read);
  return read;
}

// The kind as which a cluster uses a value; false where the cluster uses it as several kinds, with
// rows that repeat, or not at all.
bool FuseClusters::needed_kind(int c, const Var* v, FusedKind* kind) {
  const auto it = cluster(c).needs.find(v);
  if (it == cluster(c).needs.end() || (it->second & (it->second - 1)) || it->second == kRepeats)
    return false;
  for (const FusedKind k : {FusedKind::scalar, FusedKind::col, FusedKind::row, FusedKind::full})
    if (it->second == bit(k)) *kind = k;
  return true;
}

// Gives another space to a cluster; one that had rows and columns then needs find_needs(). as_rows:
// the cluster's full values are values of the rows of that space, of which the cluster must draw
// none.
void FuseClusters::set_space(int c, const FuseSpace& space, bool as_rows) {
  FuseCluster& x = cluster(c);
  x.split = true;
  x.space = space;
  if (!as_rows) return;
  for (FuseMember& m : x.members)
    if (m.kind == FusedKind::full) m.kind = FusedKind::row;
  for (auto& [v, kinds] : x.needs)
    if (kinds & bit(FusedKind::full)) kinds = (kinds & ~bit(FusedKind::full)) | bit(FusedKind::row);
}

void FuseClusters::find_needs(FuseCluster& x) {
  VarMap<bool> made;
  for (const FuseMember& m : x.members) made[result(m.eqn)] = true;
  x.needs.clear();
  for (const FuseMember& m : x.members) {
    for (const Atom& a : eqn(m.eqn).in)
      if (!a.is_literal() && !made.count(a.var())) x.needs[a.var()] |= bit(read_of(x, m, a));
  }
}

// Whether only broadcasts depend on how the cluster's elements are cut into rows. A value of rows
// or columns that a member computes, a reduction and a draw for each row fix the space.
bool FuseClusters::may_change_space(const FuseCluster& x) const {
  return std::all_of(x.members.begin(), x.members.end(), [&](const FuseMember& m) {
    const FuseRole r = role(m.eqn);
    return (m.kind == FusedKind::full || m.kind == FusedKind::scalar) && r != FuseRole::reduce &&
           !(r == FuseRole::draw && drawn_space(eqn(m.eqn)).rows > 1);
  });
}

// Whether the broadcasts among the members can read their operands in the space. as_rows: where the
// cluster's full values become values of rows.
bool FuseClusters::all_read_in(const FuseCluster& x, const FuseSpace& space, bool as_rows) const {
  return std::all_of(x.members.begin(), x.members.end(), [&](const FuseMember& m) {
    const FusedKind kind = as_rows && m.kind == FusedKind::full ? FusedKind::row : m.kind;
    FuseRead read{};
    return role(m.eqn) != FuseRole::broadcast || broadcast_read(eqn(m.eqn), kind, &space, &read);
  });
}

// Whether cluster c, which uses the result of broadcast i as `kind`, can read its operand; gives
// the cluster a space with shorter rows if it must. Of the spaces that serve the members it takes
// one that also serves the other broadcasts which the cluster reads, and are visited next.
bool FuseClusters::make_readable(int c, int i, FusedKind kind) {
  FuseCluster& x = cluster(c);
  FuseRead read{};
  if (broadcast_read(eqn(i), kind, x.split ? &x.space : nullptr, &read)) return true;
  if (kind != FusedKind::full || !may_change_space(x)) return false;
  std::vector<const Eqn*> others;
  for (const auto& [v, kinds] : x.needs) {
    const int maker = v == result(i) || kinds != bit(kind) ? -1 : program_.maker(Atom(VarRef(v)));
    if (maker >= 0 && role(maker) == FuseRole::broadcast && !broadcast_cols(eqn(maker)).empty())
      others.push_back(&eqn(maker));
  }
  FuseSpace best;
  bool any = false;
  int most = -1;
  for (const std::int64_t cols : broadcast_cols(eqn(i))) {
    const FuseSpace space{cols > 0 ? x.space.elements() / cols : 0, cols};
    if (space.elements() != x.space.elements() || !all_read_in(x, space, false) ||
        !broadcast_read(eqn(i), kind, &space, &read))
      continue;
    const auto served =
        static_cast<int>(std::count_if(others.begin(), others.end(), [&](const Eqn* e) {
          FuseRead other{};
          return broadcast_read(*e, kind, &space, &other);
        }));
    if (served > most) any = true, best = space, most = served;
  }
  if (!any) return false;
  set_space(c, best, false);
  find_needs(x);
  return true;
}

// Whether cluster c may get equation i, by its size, its axes and the kind as which it uses the
// result.
bool FuseClusters::may_take(int c, int i, FusedKind* kind) {
  const FuseCluster& x = cluster(c);
  return has_room(x, eqn(i).in.size()) && result(i)->type.axes() == x.axes &&
         needed_kind(c, result(i), kind);
}

// Makes equation i, whose result cluster c uses, a member of c.
bool FuseClusters::join(int i, int c) {
  FuseCluster& x = cluster(c);
  const Eqn& e = eqn(i);
  FusedKind kind = FusedKind::full;
  if (!may_take(c, i, &kind)) return false;
  const bool shared = !used_by_alone(i, c);
  FuseSpace space;
  bool becomes_rows = false;
  if (role(i) == FuseRole::reduce) {
    if (!reduced_space(e, &space)) return false;
    // Of a space of one row, the result is one element, which may be used as a scalar.
    const bool one_row = kind == FusedKind::scalar && space.rows == 1;
    becomes_rows = !x.draws && kind == FusedKind::full && x.space.elements() == space.rows &&
                   (!x.split || (may_change_space(x) && all_read_in(x, space, true)));
    const bool fits = x.split ? (kind == FusedKind::row || one_row) && x.space == space
                              : one_row && x.space.elements() == space.cols;
    if (!fits && !becomes_rows) return false;
    kind = FusedKind::row;
  }
  const bool small = kind == FusedKind::scalar || kind == FusedKind::col;
  if (small && (shared || x.space.cols > kColumns)) return false;
  if (shared && (result_count_of(x) >= kMostResults || is_sent(i) || leads_around(i, c)))
    return false;
  if (role(i) == FuseRole::reduce && (!x.split || becomes_rows)) {
    const bool reads_otherwise = x.split;
    set_space(c, space, becomes_rows);
    if (reads_otherwise) find_needs(x);
  }
  add_member(c, {i, kind});
  x.first = i;
  merge_makers(c);
  lower(~c, i);
  return true;
}

// Whether only cluster c uses the result.
bool FuseClusters::used_by_alone(int i, int c) const {
  if (program_.is_result(result(i))) return false;
  for (int u : users_of(result(i)))
    if (cluster_of(u) != c) return false;
  return true;
}

// Whether a collective or an effect reads i's result. Such a result must not wait for the operands
// of other members of a cluster.
bool FuseClusters::is_sent(int i) const {
  for (int u : users_of(result(i))) {
    if (is_ordered(eqn(u))) return true;
    const bool renamed = role(u) == FuseRole::reshape || role(u) == FuseRole::broadcast;
    if (renamed && is_sent(u)) return true;
  }
  return false;
}

int FuseClusters::result_count_of(const FuseCluster& x) const {
  int n = 0;
  for (const FuseMember& m : x.members) n += !m.copy && !is_inner(m.eqn);
  return n;
}

// Every cluster that can gets a copy of a broadcast, a reshape or a draw. Other users read the
// equation's result.
void FuseClusters::absorb_copies(int i) {
  const Var* v = result(i);
  std::vector<int> left;
  std::unordered_set<int> taken;
  for (int u : std::vector<int>(users_of(v))) {
    const int c = cluster_of(u);
    if (c < 0 || (!taken.count(c) && !absorb_copy(i, c))) {
      left.push_back(u);
      continue;
    }
    taken.insert(c);
  }
  if (taken.empty()) return;
  copied_.insert(i);
  if (left.empty() && !program_.is_result(v)) {  // no other equation reads the result
    for (const Atom& a : eqn(i).in) {
      if (a.is_literal()) continue;
      std::erase(users_of(a.var()), i);
    }
  }
  users_of(v) = std::move(left);
}

// Each cluster that uses random bits computes them, which is faster than storing and loading them.
// Where another equation needs the bits too, they are stored in any case, and clusters read them.
void FuseClusters::absorb_draw(int i) {
  if (program_.is_result(result(i))) return;
  for (int u : users_of(result(i)))
    if (cluster_of(u) < 0) return;
  absorb_copies(i);
}

bool FuseClusters::absorb_copy(int i, int c) {
  FuseCluster& x = cluster(c);
  const Eqn& e = eqn(i);
  FusedKind kind = FusedKind::full;
  if (!may_take(c, i, &kind)) return false;
  if (role(i) == FuseRole::draw) {
    if (kind != FusedKind::full) return false;
    const FuseSpace space = drawn_space(e);
    if (space.rows > 1) {
      if (x.split ? !(x.space == space) : x.space.elements() != space.elements()) return false;
      if (!x.split) set_space(c, space, false);
    }
  }
  if (role(i) == FuseRole::broadcast && !make_readable(c, i, kind)) return false;
  add_member(c, {i, kind, true});
  for (const Atom& a : e.in)
    if (!a.is_literal()) users_of(a.var()).push_back(x.members.front().eqn);
  return true;
}

// Merges two clusters, of which the first computes v and the second uses v; false where that is not
// possible.
bool FuseClusters::unite(int a, int b, const Var* v) {
  FuseCluster &x = cluster(a), &y = cluster(b);
  FusedKind of_y = FusedKind::full;
  const FuseMember* maker = nullptr;
  for (const FuseMember& m : x.members)
    if (!m.copy && result(m.eqn) == v) maker = &m;
  if (!maker || !needed_kind(b, v, &of_y) || !(x.axes == y.axes) || x.ops + y.ops > kMostFusedOps ||
      x.needs.size() + y.needs.size() > kMostFusedOperands ||
      result_count_of(x) + result_count_of(y) > kMostResults)
    return false;
  // v has the same elements in both clusters: full values of a cluster without rows may be values
  // of the other cluster's rows.
  const FusedKind of_x = maker->kind;
  bool fits = of_x == of_y, x_rows = false, y_rows = false;
  if (x.split && y.split) {
    fits &= x.space == y.space;
  } else if (x.split) {
    y_rows = of_x == FusedKind::row && of_y == FusedKind::full;
    fits = y_rows ? y.space.elements() == x.space.rows
                  : fits && x.space.elements() == y.space.elements();
  } else if (y.split) {
    x_rows = of_y == FusedKind::row && of_x == FusedKind::full;
    fits = x_rows ? x.space.elements() == y.space.rows
                  : fits && x.space.elements() == y.space.elements();
  } else {
    fits &= x.space.elements() == y.space.elements();
  }
  if (!fits || (x_rows && x.draws) || (y_rows && y.draws) ||
      (of_x != FusedKind::full && of_x != FusedKind::row) || !agree(x, x_rows, y, y_rows) ||
      !agree(y, y_rows, x, x_rows) || is_sent(x) || is_sent(y) || reaches(a, b) || reaches(b, a))
    return false;
  if (x.split && !y.split) set_space(b, x.space, y_rows);
  if (y.split && !x.split) set_space(a, y.space, x_rows);
  for (const auto& [var, kinds] : y.needs) x.needs[var] |= kinds;
  for (const FuseMember& m : y.members) {
    const auto same = [&](const FuseMember& o) { return o.eqn == m.eqn; };
    if (std::find_if(x.members.begin(), x.members.end(), same) == x.members.end())
      x.members.push_back(m);
  }
  for (const FuseMember& m : x.members) x.needs.erase(result(m.eqn));
  x.makers.insert(x.makers.end(), y.makers.begin(), y.makers.end());
  x.ops += y.ops;
  x.draws |= y.draws;
  x.first = std::min(x.first, y.first);
  y.merged_into = a;
  y.members.clear();
  y.makers.clear();
  merge_makers(a);
  if (x.earliest != y.earliest) {
    const int earliest = std::min(x.earliest, y.earliest);
    x.earliest = INT_MAX;
    lower(~a, earliest);
  }
  return true;
}

bool FuseClusters::is_sent(const FuseCluster& x) const {
  return std::any_of(x.members.begin(), x.members.end(),
                     [&](const FuseMember& m) { return !m.copy && is_sent(m.eqn); });
}

// Whether values that x computes have the kinds as which y computes or uses them.
bool FuseClusters::agree(const FuseCluster& x, bool x_rows, const FuseCluster& y,
                         bool y_rows) const {
  const auto as = [](FusedKind kind, bool rows) {
    return rows && kind == FusedKind::full ? FusedKind::row : kind;
  };
  VarMap<FusedKind> made;
  for (const FuseMember& m : x.members) made[result(m.eqn)] = as(m.kind, x_rows);
  for (const FuseMember& m : y.members) {
    const auto it = made.find(result(m.eqn));
    if (it != made.end() && it->second != as(m.kind, y_rows)) return false;
  }
  for (const auto& [var, kinds] : y.needs) {
    const auto it = made.find(var);
    if (it == made.end()) continue;
    if (kinds & kRepeats) return false;
    for (const FusedKind k : {FusedKind::scalar, FusedKind::col, FusedKind::row, FusedKind::full})
      if ((kinds & bit(k)) && as(k, y_rows) != it->second) return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------- cycles

// Whether cluster c depends on i's result through an equation outside of c. Joining i and c would
// then make a cycle.
bool FuseClusters::leads_around(int i, int c) {
  std::vector<int> from;
  for (int u : users_of(result(i)))
    if (cluster_of(u) != c) from.push_back(u);
  return search(from, {&c, 1});
}

// Whether one cluster depends on the other through an equation outside of both.
bool FuseClusters::reaches(int from, int to) {
  std::vector<int> next;
  for (const FuseMember& m : cluster(from).members)
    if (!m.copy) push_successors(m.eqn, &next);
  next.erase(std::remove_if(next.begin(), next.end(),
                            [&](int e) {
                              const int c = cluster_of(e);
                              return c == from || c == to;
                            }),
             next.end());
  return search(next, {&to, 1});
}

// Whether one of these clusters, which are in order, depends on another one through an equation
// outside of all of them.
bool FuseClusters::reach_each_other(const std::vector<int>& clusters) {
  std::vector<int> all, next;
  for (const int c : clusters)
    for (const FuseMember& m : cluster(c).members)
      if (!m.copy) push_successors(m.eqn, &all);
  for (const int e : all)
    if (!std::binary_search(clusters.begin(), clusters.end(), cluster_of(e))) next.push_back(e);
  return search(next, clusters);
}

void FuseClusters::push_successors(int i, std::vector<int>* out) const {
  for (const VarRef& v : eqn(i).out) {
    const std::vector<int>& users = users_of(v.get());
    out->insert(out->end(), users.begin(), users.end());
  }
  if (const int next = next_ordered_[static_cast<std::size_t>(i)]; next >= 0) out->push_back(next);
}

// Whether one of the clusters, which are in order, depends on one of these equations; true also
// where the search takes too long. Most searches end at once: what only later equations depend on
// does not lead to an earlier cluster.
bool FuseClusters::search(std::vector<int> from, std::span<const int> clusters) {
  std::unordered_set<int> seen;  // equations, and clusters as ~c
  int last = 0;                  // the last first equation of the clusters
  for (const int c : clusters) last = std::max(last, cluster(c).first);
  int steps = 0;
  while (!from.empty()) {
    const int i = from.back();
    from.pop_back();
    const int at = cluster_of(i), node = at < 0 ? i : ~at;
    if (std::binary_search(clusters.begin(), clusters.end(), at)) return true;
    if (earliest(node) > last || !seen.insert(node).second) continue;
    if (++steps > kSearch) return true;
    if (at < 0) {
      push_successors(i, &from);
      continue;
    }
    for (const FuseMember& m : cluster(at).members)
      if (!m.copy) push_successors(m.eqn, &from);
  }
  return false;
}

// node: an equation in no cluster, or ~c for cluster c.
int& FuseClusters::earliest(int node) {
  return node < 0 ? cluster(~node).earliest : earliest_alone_[static_cast<std::size_t>(node)];
}

// Keeps one maker of each cluster, and none of cluster c: what is in one cluster stays together.
void FuseClusters::merge_makers(int c) {
  std::vector<int>& makers = cluster(c).makers;
  std::erase_if(makers, [&](int i) { return cluster_of(i) == c; });
  const auto node = [&](int i) {
    const int of = cluster_of(i);
    return of < 0 ? i : ~of;
  };
  std::sort(makers.begin(), makers.end(), [&](int i, int j) { return node(i) < node(j); });
  const auto same = [&](int i, int j) { return node(i) == node(j); };
  makers.erase(std::unique(makers.begin(), makers.end(), same), makers.end());
}

// Notes that equation `to` is a member of the node or depends on it, and so on all that the node
// depends on. Equations that have not been visited yet begin with what they lead to by themselves.
void FuseClusters::lower(int node, int to) {
  std::vector<int> left = {node};
  const auto visit_maker = [&](int i) {
    if (i < visited_) return;
    const int c = cluster_of(i);
    left.push_back(c < 0 ? i : ~c);
  };
  while (!left.empty()) {
    const int at = left.back();
    left.pop_back();
    if (earliest(at) <= to) continue;
    earliest(at) = to;
    if (at < 0) {  // no member is ordered
      for (const int i : cluster(~at).makers) visit_maker(i);
      continue;
    }
    for (const Atom& a : eqn(at).in)
      if (!a.is_literal()) visit_maker(program_.maker(a));
    visit_maker(previous_ordered_[static_cast<std::size_t>(at)]);
  }
}

}  // namespace shmap
