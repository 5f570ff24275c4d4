#include "core/transforms/fuse.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/ir/node.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"
#include "core/runtime/fused_program.h"

namespace shmap {

namespace {

// A reduced row is worked on by one thread, in its caches.
constexpr std::int64_t kRowBytes = 256 * 1024;
// What is computed of columns is computed by each thread.
constexpr std::int64_t kColumns = 16 * 1024;
constexpr int kMostOps = 96, kMostResults = 8;
constexpr std::size_t kMostOperands = 24;
constexpr int kSearch = 2000;  // steps of a search for cycles, after which there may be one

bool is_map(const Primitive* p) {
  static const auto* const all = [] {
    auto* set =
        new std::unordered_set<const Primitive*>{&select_n_p, &clamp_p, &convert_element_type_p};
#define SHMAP_INSERT(name, domain) set->insert(&name##_p);
    SHMAP_UNARY_PRIMITIVES(SHMAP_INSERT)
    SHMAP_PREDICATE_PRIMITIVES(SHMAP_INSERT)
    SHMAP_BINARY_PRIMITIVES(SHMAP_INSERT)
    SHMAP_COMPARE_PRIMITIVES(SHMAP_INSERT)
#undef SHMAP_INSERT
    return set;
  }();
  return all->count(p) != 0;
}
bool is_reduction(const Primitive* p) {
  return p == &reduce_sum_p || p == &reduce_prod_p || p == &reduce_max_p || p == &reduce_min_p ||
         p == &reduce_and_p || p == &reduce_or_p;
}

enum class Role : std::uint8_t { other, map, reduce, broadcast, reshape };

struct Space {
  std::int64_t rows = 1, cols = 1;
  friend bool operator==(const Space&, const Space&) = default;
};

// The rows and columns of an array of this shape where the dims of `inner` are those of a row: all
// of them after all the others, extents of 1 aside. False where they are not.
bool split_shape(const Shape& shape, std::uint32_t inner, Space* out) {
  *out = Space();
  bool in_row = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (inner >> d & 1u) {
      in_row = true;
      out->cols *= shape[d];
    } else {
      if (in_row) return false;
      out->rows *= shape[d];
    }
  }
  return true;
}

struct Member {
  int eqn;
  FusedKind kind;     // of its result
  bool copy = false;  // the equation itself stays, for others
};

// Some equations of one space, to become one.
struct Cluster {
  std::vector<Member> members;
  // Of values from outside, the kinds that they are used as: bits.
  VarMap<std::uint32_t> needs;
  bool split = false;  // whether rows and columns matter; else all is full or scalar, in one row
  Space space;
  AxisSet axes;
  int ops = 0;
  int merged_into = -1;

  std::int64_t elements() const { return space.rows * space.cols; }
};

std::uint32_t bit(FusedKind kind) { return 1u << static_cast<int>(kind); }

class Fuser {
 public:
  explicit Fuser(const JaxprRef& jaxpr) : jaxpr_(jaxpr), eqns_(jaxpr->eqns) {}

  JaxprRef run() {
    find_users();
    for (const Eqn& e : eqns_) roles_.push_back(find_role(e));
    cluster_of_.assign(eqns_.size(), -1);
    for (int i = static_cast<int>(eqns_.size()) - 1; i >= 0; --i) visit(i);
    return rebuild();
  }

 private:
  const Eqn& eqn(int i) const { return eqns_[static_cast<std::size_t>(i)]; }
  const Var* result(int i) const { return eqn(i).out[0].get(); }
  Role role(int i) const { return roles_[static_cast<std::size_t>(i)]; }

  // The cluster that an equation is in, or -1.
  int cluster_of(int i) const {
    int c = cluster_of_[static_cast<std::size_t>(i)];
    while (c >= 0 && clusters_[static_cast<std::size_t>(c)].merged_into >= 0)
      c = clusters_[static_cast<std::size_t>(c)].merged_into;
    return c;
  }
  Cluster& cluster(int c) { return clusters_[static_cast<std::size_t>(c)]; }

  void find_users() {
    int last_ordered = -1;
    next_ordered_.assign(eqns_.size(), -1);
    for (int i = 0; i < static_cast<int>(eqns_.size()); ++i) {
      for (const Atom& a : eqn(i).in) {
        if (a.is_literal()) continue;
        std::vector<int>& users = users_[a.var()];
        if (users.empty() || users.back() != i) users.push_back(i);
      }
      if (!is_ordered(eqn(i))) continue;
      if (last_ordered >= 0) next_ordered_[static_cast<std::size_t>(last_ordered)] = i;
      last_ordered = i;
    }
    for (const Atom& a : jaxpr_->outs)
      if (!a.is_literal()) outs_.insert(a.var());
  }
  static bool is_ordered(const Eqn& e) { return e.primitive->group || has_effect(e); }

  // ------------------------------------------------------------------------ what an equation is

  static Role find_role(const Eqn& e) {
    if (e.out.size() != 1 || e.out[0]->type.dtype() == DType::prng_key) return Role::other;
    bool any_var = false;
    for (const Atom& a : e.in) {
      any_var |= !a.is_literal();
      if (a.type().dtype() == DType::prng_key) return Role::other;
    }
    if (!any_var) return Role::other;
    if (is_map(e.primitive)) return Role::map;
    if (e.primitive == &bitcast_convert_type_p &&
        itemsize(e.in[0].type().dtype()) == itemsize(e.out[0]->type.dtype()))
      return Role::map;
    if (is_reduction(e.primitive)) return Role::reduce;
    if (e.primitive == &broadcast_in_dim_p) return Role::broadcast;
    if (e.primitive == &reshape_p) return Role::reshape;
    return Role::other;
  }

  // The space that a reduction works on. False where it reduces others than the last dims, or rows
  // too long to be held.
  static bool reduced_space(const Eqn& e, Space* out) {
    const ShapedArray& in = e.in[0].type();
    std::uint32_t inner = 0;
    for (std::int64_t d : params_as<ReduceParams>(*e.params).axes) inner |= 1u << d;
    return inner != 0 && split_shape(in.dims(), inner, out) &&
           out->cols * itemsize(in.dtype()) <= kRowBytes;
  }

  // What a broadcast's operand is to the result, whose space it may decide: full, row, col or
  // scalar. False where it is none.
  static bool broadcast_kind(const Eqn& e, FusedKind* kind, Space* space) {
    const Shape &from = e.in[0].type().dims(), &to = e.out[0]->type.dims();
    const Dims& dims = params_as<BroadcastParams>(*e.params).dims;
    std::uint32_t carried = 0;
    for (std::size_t d = 0; d < from.size(); ++d) {
      const auto target = static_cast<std::size_t>(dims[d]);
      if (from[d] == to[target]) carried |= 1u << target;
    }
    bool any = false, all = true;
    for (std::size_t d = 0; d < to.size(); ++d) {
      if (to[d] == 1) continue;
      any |= carried >> d & 1u;
      all &= carried >> d & 1u;
    }
    *kind = all ? FusedKind::full : FusedKind::scalar;
    if (all || !any) return true;
    *kind = FusedKind::row;
    if (split_shape(to, ~carried, space)) return true;
    *kind = FusedKind::col;
    return split_shape(to, carried, space);
  }

  // As what an equation of a cluster, whose result is of kind `kind`, uses operand a.
  FusedKind operand_kind(int i, FusedKind kind, const Atom& a) const {
    const Eqn& e = eqn(i);
    switch (role(i)) {
      case Role::reduce:
        return FusedKind::full;
      case Role::broadcast: {
        FusedKind from = kind;
        Space space;
        broadcast_kind(e, &from, &space);
        return from == FusedKind::full ? kind : from;
      }
      case Role::map:
        if (a.is_literal() || (a.type().rank() == 0 && e.out[0]->type.rank() != 0))
          return FusedKind::scalar;
        return kind;
      default:
        return kind;
    }
  }

  // ------------------------------------------------------------------------------ clusters grow

  void visit(int i) {
    const Role r = role(i);
    if (r == Role::other) return;
    const Var* v = result(i);
    if (r == Role::broadcast || r == Role::reshape) return absorb_copies(i);
    const std::vector<int>* users = users_of(v);
    const bool is_out = outs_.count(v) != 0;
    if (!users && !is_out) return;
    std::vector<int> candidates;  // clusters that use it
    if (users) {
      for (int u : *users) {
        const int c = cluster_of(u);
        if (c >= 0 && std::find(candidates.begin(), candidates.end(), c) == candidates.end())
          candidates.push_back(c);
      }
    }
    std::sort(candidates.begin(), candidates.end());
    int home = -1;
    for (int c : candidates) {
      if (home < 0) {
        if (join(i, c)) home = c;
      } else if (unite(home, c, v)) {
        // The value is made where both use it.
      }
    }
    if (home < 0) begin(i, r);
  }

  const std::vector<int>* users_of(const Var* v) const {
    const auto it = users_.find(v);
    return it == users_.end() || it->second.empty() ? nullptr : &it->second;
  }

  void begin(int i, Role r) {
    Cluster c;
    c.axes = result(i)->type.axes();
    FusedKind kind = FusedKind::full;
    if (r == Role::reduce) {
      if (!reduced_space(eqn(i), &c.space)) return;
      c.split = true;
      kind = FusedKind::row;
    } else {
      c.space = {1, result(i)->type.size()};
    }
    clusters_.push_back(std::move(c));
    add_member(static_cast<int>(clusters_.size()) - 1, {i, kind});
  }

  void add_member(int c, Member m) {
    Cluster& x = cluster(c);
    const Eqn& e = eqn(m.eqn);
    x.members.push_back(m);
    x.ops += role(m.eqn) != Role::reshape;
    if (!m.copy) cluster_of_[static_cast<std::size_t>(m.eqn)] = c;
    x.needs.erase(result(m.eqn));
    for (const Atom& a : e.in)
      if (!a.is_literal()) x.needs[a.var()] |= bit(operand_kind(m.eqn, m.kind, a));
  }

  // The kind as which a cluster uses a value; false where it uses it as several, or not at all.
  bool needed_kind(int c, const Var* v, FusedKind* kind) {
    const auto it = cluster(c).needs.find(v);
    if (it == cluster(c).needs.end() || (it->second & (it->second - 1))) return false;
    for (const FusedKind k : {FusedKind::scalar, FusedKind::col, FusedKind::row, FusedKind::full})
      if (it->second == bit(k)) *kind = k;
    return true;
  }

  static bool has_room(const Cluster& x, std::size_t operands) {
    return x.ops < kMostOps && x.needs.size() + operands <= kMostOperands;
  }

  // A space in which a cluster without rows and columns is full, or where it is a value of rows.
  void set_space(int c, const Space& space, bool as_rows) {
    Cluster& x = cluster(c);
    x.split = true;
    x.space = space;
    if (!as_rows) return;
    for (Member& m : x.members)
      if (m.kind == FusedKind::full) m.kind = FusedKind::row;
    for (auto& [v, kinds] : x.needs)
      if (kinds & bit(FusedKind::full))
        kinds = (kinds & ~bit(FusedKind::full)) | bit(FusedKind::row);
  }

  // Makes equation i, whose result cluster c uses, part of it.
  bool join(int i, int c) {
    Cluster& x = cluster(c);
    const Eqn& e = eqn(i);
    FusedKind kind = FusedKind::full;
    if (!has_room(x, e.in.size()) || !(result(i)->type.axes() == x.axes) ||
        !needed_kind(c, result(i), &kind))
      return false;
    const bool shared = !used_by_alone(i, c);
    Space space;
    bool becomes_rows = false;
    if (role(i) == Role::reduce) {
      if (!reduced_space(e, &space)) return false;
      // Of one row the only element may have been used as a scalar.
      const bool one_row = kind == FusedKind::scalar && space.rows == 1;
      becomes_rows = !x.split && kind == FusedKind::full && x.elements() == space.rows;
      const bool fits = x.split ? (kind == FusedKind::row || one_row) && x.space == space
                                : becomes_rows || (one_row && x.elements() == space.cols);
      if (!fits) return false;
      kind = FusedKind::row;
    }
    const bool small = kind == FusedKind::scalar || kind == FusedKind::col;
    if (small && (shared || x.space.cols > kColumns)) return false;
    if (shared && (result_count_of(x) >= kMostResults || leads_around(i, c))) return false;
    if (role(i) == Role::reduce && !x.split) set_space(c, space, becomes_rows);
    add_member(c, {i, kind});
    return true;
  }

  // Whether only cluster c uses the result.
  bool used_by_alone(int i, int c) const {
    if (outs_.count(result(i))) return false;
    for (int u : *users_of(result(i)))
      if (cluster_of(u) != c) return false;
    return true;
  }
  int result_count_of(const Cluster& x) const {
    int n = 0;
    for (const Member& m : x.members) n += !m.copy && !is_inner(m.eqn);
    return n;
  }
  // Whether a member's result stays in its cluster.
  bool is_inner(int i) const { return users_of(result(i)) && used_by_alone(i, cluster_of(i)); }

  // A broadcast or a reshape is taken in by every cluster that can; what else uses it, uses the
  // equation.
  void absorb_copies(int i) {
    const Var* v = result(i);
    const auto it = users_.find(v);
    if (it == users_.end()) return;
    std::vector<int> left;
    std::unordered_set<int> taken;
    for (int u : std::vector<int>(it->second)) {
      const int c = cluster_of(u);
      if (c < 0 || (!taken.count(c) && !absorb_copy(i, c))) {
        left.push_back(u);
        continue;
      }
      taken.insert(c);
    }
    if (taken.empty()) return;
    copied_.insert(i);
    if (left.empty() && !outs_.count(v)) {  // nobody uses the equation itself
      std::vector<int>& users = users_[eqn(i).in[0].var()];
      users.erase(std::remove(users.begin(), users.end(), i), users.end());
    }
    users_[v] = std::move(left);
  }

  bool absorb_copy(int i, int c) {
    Cluster& x = cluster(c);
    const Eqn& e = eqn(i);
    FusedKind kind = FusedKind::full;
    if (!has_room(x, 1) || !(result(i)->type.axes() == x.axes) || !needed_kind(c, result(i), &kind))
      return false;
    if (role(i) == Role::broadcast) {
      FusedKind from = FusedKind::full;
      Space space;
      if (!broadcast_kind(e, &from, &space)) return false;
      if (from == FusedKind::row || from == FusedKind::col) {
        if (kind != FusedKind::full || (x.split && !(x.space == space))) return false;
        if (!x.split) {
          if (x.elements() != space.rows * space.cols) return false;
          set_space(c, space, false);
        }
      }
    }
    add_member(c, {i, kind, true});
    std::vector<int>& users = users_[e.in[0].var()];
    users.push_back(x.members.front().eqn);
    return true;
  }

  // One cluster of two, of which the first makes v and the second uses it, where that is possible.
  bool unite(int a, int b, const Var* v) {
    Cluster &x = cluster(a), &y = cluster(b);
    FusedKind of_y = FusedKind::full;
    const Member* maker = nullptr;
    for (const Member& m : x.members)
      if (!m.copy && result(m.eqn) == v) maker = &m;
    if (!maker || !needed_kind(b, v, &of_y) || !(x.axes == y.axes) || x.ops + y.ops > kMostOps ||
        x.needs.size() + y.needs.size() > kMostOperands ||
        result_count_of(x) + result_count_of(y) > kMostResults)
      return false;
    // v has the same elements in both: full ones of a cluster without rows may be another's rows.
    const FusedKind of_x = maker->kind;
    bool fits = of_x == of_y, x_rows = false, y_rows = false;
    if (x.split && y.split) {
      fits &= x.space == y.space;
    } else if (x.split) {
      y_rows = of_x == FusedKind::row && of_y == FusedKind::full;
      fits = y_rows ? y.elements() == x.space.rows : fits && x.elements() == y.elements();
    } else if (y.split) {
      x_rows = of_y == FusedKind::row && of_x == FusedKind::full;
      fits = x_rows ? x.elements() == y.space.rows : fits && x.elements() == y.elements();
    } else {
      fits &= x.elements() == y.elements();
    }
    if (!fits || (of_x != FusedKind::full && of_x != FusedKind::row) ||
        !agree(x, x_rows, y, y_rows) || !agree(y, y_rows, x, x_rows) || reaches(a, b) ||
        reaches(b, a))
      return false;
    if (x.split && !y.split) set_space(b, x.space, y_rows);
    if (y.split && !x.split) set_space(a, y.space, x_rows);
    for (const auto& [var, kinds] : y.needs) x.needs[var] |= kinds;
    for (const Member& m : y.members) {
      const auto same = [&](const Member& o) { return o.eqn == m.eqn; };
      if (std::find_if(x.members.begin(), x.members.end(), same) == x.members.end())
        x.members.push_back(m);
    }
    for (const Member& m : x.members) x.needs.erase(result(m.eqn));
    x.ops += y.ops;
    y.merged_into = a;
    y.members.clear();
    return true;
  }

  // Whether what x makes is of the kind that y makes or needs it as, if it does.
  bool agree(const Cluster& x, bool x_rows, const Cluster& y, bool y_rows) const {
    const auto as = [](FusedKind kind, bool rows) {
      return rows && kind == FusedKind::full ? FusedKind::row : kind;
    };
    VarMap<FusedKind> made;
    for (const Member& m : x.members) made[result(m.eqn)] = as(m.kind, x_rows);
    for (const Member& m : y.members) {
      const auto it = made.find(result(m.eqn));
      if (it != made.end() && it->second != as(m.kind, y_rows)) return false;
    }
    for (const auto& [var, kinds] : y.needs) {
      const auto it = made.find(var);
      if (it == made.end()) continue;
      for (const FusedKind k : {FusedKind::scalar, FusedKind::col, FusedKind::row, FusedKind::full})
        if ((kinds & bit(k)) && as(k, y_rows) != it->second) return false;
    }
    return true;
  }

  // ------------------------------------------------------------------------------------- cycles

  // Whether another user of i's result leads to cluster c: c would be before itself.
  bool leads_around(int i, int c) {
    std::vector<int> from;
    if (const std::vector<int>* users = users_of(result(i)))
      for (int u : *users)
        if (cluster_of(u) != c) from.push_back(u);
    return search(from, c);
  }
  // Whether there is a way from one cluster to another that passes by a third equation.
  bool reaches(int from, int to) {
    std::vector<int> next;
    for (const Member& m : cluster(from).members)
      if (!m.copy) push_successors(m.eqn, &next);
    next.erase(std::remove_if(next.begin(), next.end(),
                              [&](int e) {
                                const int c = cluster_of(e);
                                return c == from || c == to;
                              }),
               next.end());
    return search(next, to);
  }
  void push_successors(int i, std::vector<int>* out) const {
    for (const VarRef& v : eqn(i).out)
      if (const std::vector<int>* users = users_of(v.get()))
        out->insert(out->end(), users->begin(), users->end());
    if (const int next = next_ordered_[static_cast<std::size_t>(i)]; next >= 0)
      out->push_back(next);
  }
  // Whether cluster c follows from one of the equations; true also where that takes too long to
  // find out.
  bool search(std::vector<int> from, int c) {
    std::unordered_set<int> seen;  // equations, and clusters as ~c
    int steps = 0;
    while (!from.empty()) {
      if (++steps > kSearch) return true;
      const int i = from.back();
      from.pop_back();
      const int at = cluster_of(i);
      if (at == c) return true;
      if (!seen.insert(at < 0 ? i : ~at).second) continue;
      if (at < 0) {
        push_successors(i, &from);
        continue;
      }
      for (const Member& m : cluster(at).members)
        if (!m.copy) push_successors(m.eqn, &from);
    }
    return false;
  }

  // ------------------------------------------------------------------------------ the new jaxpr

  struct Placed {
    Eqn eqn;
    int position;
  };

  JaxprRef rebuild() {
    std::vector<Placed> placed;
    std::vector<bool> gone(eqns_.size(), false);
    bool any = false;
    for (Cluster& x : clusters_) {
      if (x.merged_into >= 0 || x.ops < 2) continue;
      any = true;
      std::sort(x.members.begin(), x.members.end(),
                [](const Member& a, const Member& b) { return a.eqn < b.eqn; });
      placed.push_back({fused_equation(x), x.members.back().eqn});
      for (const Member& m : x.members)
        if (!m.copy) gone[static_cast<std::size_t>(m.eqn)] = true;
    }
    if (!any) return jaxpr_;
    for (int i = 0; i < static_cast<int>(eqns_.size()); ++i)
      if (!gone[static_cast<std::size_t>(i)]) placed.push_back({eqn(i), i});
    auto made = make_ref<Jaxpr>();
    made->binders = jaxpr_->binders;
    made->outs = jaxpr_->outs;
    made->env = jaxpr_->env;
    made->checks_variance = jaxpr_->checks_variance;
    made->eqns = in_order(without_unused_copies(std::move(placed)));
    check_pass(*made, "fuse");
    return made;
  }

  Eqn fused_equation(const Cluster& x) {
    const std::int64_t rows = x.split ? x.space.rows : 1;
    const std::int64_t cols = x.split ? x.space.cols : x.elements();
    auto program = std::make_shared<FusedProgram>(rows, cols);
    VarMap<int> values;
    std::map<std::pair<const Var*, FusedKind>, int> operands;
    Eqn made;
    made.primitive = &fused_p;
    for (const Member& m : x.members) values[result(m.eqn)] = -1;
    for (const Member& m : x.members) {
      for (const Atom& a : eqn(m.eqn).in) {
        if (a.is_literal() || values.count(a.var())) continue;
        const FusedKind kind = operand_kind(m.eqn, m.kind, a);
        const auto [it, is_new] = operands.try_emplace({a.var(), kind}, 0);
        if (!is_new) continue;
        it->second = program->add_input(a.type().dtype(), kind);
        made.in.push_back(a);
      }
    }
    const auto value_of = [&](const Atom& a, FusedKind kind) {
      if (a.is_literal()) {
        const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
        return program->add_literal(literal.type.dtype(), literal.value);
      }
      const auto it = values.find(a.var());
      return it != values.end() ? it->second : operands.at({a.var(), kind});
    };
    for (const Member& m : x.members) {
      const Eqn& e = eqn(m.eqn);
      std::vector<int> in;
      for (const Atom& a : e.in) in.push_back(value_of(a, operand_kind(m.eqn, m.kind, a)));
      int value = in[0];
      switch (role(m.eqn)) {
        case Role::map:
          value = program->add_map(*e.primitive, std::move(in), e.params);
          break;
        case Role::reduce:
          value = program->add_reduce(*e.primitive, in[0]);
          break;
        case Role::broadcast:
          // Of one row a reduced element is used as a scalar: already wider then.
          if (joint_kind(program->kind(in[0]), m.kind) == m.kind && program->kind(in[0]) != m.kind)
            value = program->add_broadcast(in[0], m.kind);
          break;
        default:
          break;
      }
      values[result(m.eqn)] = value;
      made.source = e.source;
    }
    // Full results first: one of them may take the memory of an operand.
    for (const FusedKind kind : {FusedKind::full, FusedKind::row}) {
      for (const Member& m : x.members) {
        if (m.copy || m.kind != kind || is_inner(m.eqn)) continue;
        int value = values[result(m.eqn)];
        if (program->kind(value) != kind) value = program->add_broadcast(value, kind);
        program->add_output(value, result(m.eqn)->type);
        made.out.push_back(eqn(m.eqn).out[0]);
      }
    }
    made.params = std::make_shared<FusedParams>(std::move(program));
    return made;
  }

  std::vector<Placed> without_unused_copies(std::vector<Placed> placed) const {
    std::unordered_set<const Var*> used(outs_);
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return a.position < b.position; });
    std::unordered_map<const Var*, int> uses;
    for (const Placed& p : placed)
      for (const Atom& a : p.eqn.in)
        if (!a.is_literal()) ++uses[a.var()];
    std::vector<Placed> kept;
    for (std::size_t i = placed.size(); i-- > 0;) {
      Placed& p = placed[i];
      const bool is_copied = p.eqn.primitive != &fused_p && copied_.count(p.position);
      if (is_copied && !used.count(p.eqn.out[0].get()) && uses[p.eqn.out[0].get()] == 0) {
        for (const Atom& a : p.eqn.in)
          if (!a.is_literal()) --uses[a.var()];
        continue;
      }
      kept.push_back(std::move(p));
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  // By what they need of each other; else where they, or the last of them, stood.
  std::vector<Eqn> in_order(std::vector<Placed> placed) const {
    std::unordered_map<const Var*, std::size_t> maker;
    for (std::size_t k = 0; k < placed.size(); ++k)
      for (const VarRef& v : placed[k].eqn.out) maker[v.get()] = k;
    std::vector<std::vector<std::size_t>> followers(placed.size());
    std::vector<int> missing(placed.size(), 0);
    const auto precede = [&](std::size_t a, std::size_t b) {
      followers[a].push_back(b);
      ++missing[b];
    };
    std::size_t last_ordered = placed.size();
    for (std::size_t k = 0; k < placed.size(); ++k) {
      for (const Atom& a : placed[k].eqn.in) {
        if (a.is_literal()) continue;
        if (const auto it = maker.find(a.var()); it != maker.end()) precede(it->second, k);
      }
      if (!is_ordered(placed[k].eqn)) continue;
      if (last_ordered != placed.size()) precede(last_ordered, k);
      last_ordered = k;
    }
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t k = 0; k < placed.size(); ++k)
      if (missing[k] == 0) ready.push(k);
    std::vector<Eqn> out;
    while (!ready.empty()) {
      const std::size_t k = ready.top();
      ready.pop();
      out.push_back(placed[k].eqn);
      for (std::size_t f : followers[k])
        if (--missing[f] == 0) ready.push(f);
    }
    if (out.size() != placed.size()) {
      throw Error("fuse: equations wait for each other; please report the program");
    }
    return out;
  }

  const JaxprRef& jaxpr_;
  const std::vector<Eqn>& eqns_;
  VarMap<std::vector<int>> users_;  // of each value: equations, of clusters one of them
  std::unordered_set<const Var*> outs_;
  std::vector<Role> roles_;
  std::vector<int> next_ordered_;  // collectives and effects, which keep their order
  std::vector<int> cluster_of_;
  std::vector<Cluster> clusters_;
  std::unordered_set<int> copied_;
};

}  // namespace

JaxprRef fuse(const JaxprRef& jaxpr) { return Fuser(jaxpr).run(); }

}  // namespace shmap
