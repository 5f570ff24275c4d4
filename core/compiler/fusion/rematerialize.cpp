#include "core/compiler/fusion/rematerialize.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/env.h"
#include "core/compiler/fusion/fuse_rules.h"
#include "core/compiler/fusion/fused_from_fused.h"
#include "core/compiler/passes/lifetimes.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/rewriter.h"
#include "core/compiler/passes/schedule.h"
#include "core/ir/collective_axes.h"
#include "core/ir/nesting.h"
#include "core/ops/optimization_barrier.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// Programs with a smaller peak, in bytes, are left as they are.
constexpr std::int64_t kSmallestPeak = 1 << 20;
// A sequence of changes is kept once the peak has fallen by this part of its original size.
constexpr double kSmallestFall = 0.02;
// Each change frees at least this part of the peak.
constexpr double kSmallestGain = kSmallestFall / 4;
// The most additional time that a program may take, as a part of its original time.
constexpr double kMostWork = 0.02;
constexpr int kMostChanges = 32;
// A value that has more members (itself and its views) stays where it is.
constexpr std::size_t kMostMembers = 64;

// The bytes that values take on all local devices of a mesh.
class Sizes {
 public:
  Sizes(const ProgramIndex& program, const detail::MeshImpl* mesh) : program_(program) {
    // A process of several cannot tell what the devices of the other processes store.
    if (mesh && mesh->fully_addressable()) mesh_ = mesh;
    if (!mesh_) return;
    stored_over_.resize(static_cast<std::size_t>(program.value_count()));
    for (const VarRef& v : program.jaxpr().binders)
      if (program.number(v.get()) >= 0) over(v.get()) = mask(v->type.axes());
    for (const Eqn& e : program.jaxpr().eqns)
      for (const VarRef& v : e.out) over(v.get()) = mask_of(e, v->type);
  }

  std::int64_t operator()(const Var* v) const {
    const std::int64_t bytes = v->type.nbytes();
    if (!mesh_) return bytes;
    const std::uint32_t axes = stored_over_[static_cast<std::size_t>(program_.number(v))];
    return bytes * static_cast<std::int64_t>(mesh_->cohorts(axes).leaders.size());
  }

 private:
  std::uint32_t mask(const AxisSet& axes) const { return axes.mask_in(*mesh_->env()); }
  std::uint32_t& over(const Var* v) {
    return stored_over_[static_cast<std::size_t>(program_.number(v))];
  }

  // The axes over which devices of one memory space have blocks of their own.
  std::uint32_t mask_of(const Eqn& e, const ShapedArray& type) const {
    const std::uint32_t varying = mask(type.axes());
    if (!gives_equal(e.primitive->traffic)) return varying;
    std::uint32_t equal = 0;
    for (const std::string& name : collective_axes(*e.params))
      if (const int axis = mesh_->env()->find(name); axis >= 0) equal |= 1u << axis;
    return varying & ~equal;
  }

  const ProgramIndex& program_;
  const detail::MeshImpl* mesh_ = nullptr;
  std::vector<std::uint32_t> stored_over_;  // by number of the value
};

bool is_cheap(const Eqn& e) {
  return e.primitive == &fused_p || fuse_role(e) == FuseRole::map ||
         e.primitive == &broadcast_in_dim_p || e.primitive == &iota_p;
}

bool draws(const Eqn& e) {
  if (e.primitive != &fused_p) return false;
  const std::vector<FusedProgram::Op>& ops = params_as<FusedParams>(*e.params).program->ops();
  return std::any_of(ops.begin(), ops.end(), [](const FusedProgram::Op& op) {
    return op.op == FusedProgram::OpKind::draw;
  });
}

// A change that frees memory where the most is needed.
struct Change {
  int eqn = -1;               // the equation that makes the values
  int result = -1;            // the result that is computed again; -1: the equation moves
  int before = -1;            // the last reader before the values are dropped, or `eqn`
  int at = -1;                // the equation before which the values are computed
  Eqn made;                   // the equation that computes them there
  std::optional<Eqn> reader;  // replaces equation `at` and contains `made`, if possible
  std::int64_t gain = 0;
  double ns = 0;
  bool moves() const { return result < 0; }
  // True if this change frees more memory per time of additional work.
  bool is_better_than(const Change& other) const {
    return static_cast<double>(gain) * (other.ns + 1) > static_cast<double>(other.gain) * (ns + 1);
  }
};

// The devices that will run a program, and what is known of the programs inside of it.
struct Setting {
  const detail::MeshImpl* mesh;
  DeviceKind kind;
  const Rates& rates;
  std::unordered_map<const Params*, std::int64_t> bytes_inside = {};
};

// An upper bound of the bytes that the programs inside of an equation have at once. Programs nested
// deeper do not count, and the programs are taken as they were traced, before their own passes.
std::int64_t bytes_inside(const Eqn& e, Setting& setting) {
  if (!e.primitive->interpret) return 0;
  const auto [known, is_new] = setting.bytes_inside.try_emplace(e.params.get(), 0);
  if (!is_new) return known->second;
  std::int64_t most = 0;
  for (const Jaxpr* inner : inner_jaxprs(*e.params)) {
    const PassVisit visit("rematerialize", *inner);
    const ProgramIndex program(*inner);
    const Lifetimes lifetimes(program, setting.kind, Sizes(program, setting.mesh));
    for (std::int64_t need : lifetimes.needs([](const Eqn&) { return 0; }))
      most = std::max(most, need);
  }
  return known->second = most;
}

// A program and its memory.
class Memory {
 public:
  Memory(const Jaxpr& jaxpr, Setting& setting)
      : rates_(setting.rates),
        may_fuse_(can_run_fused(setting.kind)),
        program_(jaxpr),
        lifetimes_(program_, setting.kind, Sizes(program_, setting.mesh)),
        needs_(lifetimes_.needs([&](const Eqn& e) { return bytes_inside(e, setting); })),
        fullest_(static_cast<int>(std::max_element(needs_.begin(), needs_.end()) - needs_.begin())),
        members_(lifetimes_.all().size()) {
    for (int i = 0; i < program_.size(); ++i)
      for (const VarRef& v : program_.eqn(i).out) members_[held_of(v)].push_back(v.get());
  }

  std::int64_t peak() const { return needs_.empty() ? 0 : need(fullest_); }

  // The estimated time of the program: compute operations one after another, and beside them the
  // collectives, one after another.
  double ns() const {
    std::vector<double> ready(static_cast<std::size_t>(program_.value_count()), 0);
    double free[2] = {0, 0};
    for (const Eqn& e : program_.jaxpr().eqns) {
      double start = 0;
      for (const Atom& a : e.in)
        if (!a.is_literal()) start = std::max(start, ready[number(a.var())]);
      if (!is_view(e)) {
        double& stream = free[e.primitive->group != nullptr];
        start = stream = std::max(stream, start) + scheduled_ns(e, rates_);
      }
      for (const VarRef& v : e.out) ready[number(v.get())] = start;
    }
    return std::max(free[0], free[1]);
  }

  // The best change, apart from changes of equations whose first result is in `banned`.
  std::optional<Change> best(const std::unordered_set<const Var*>& banned) const {
    std::optional<Change> best;
    const auto take = [&](std::optional<Change> found) {
      if (found && found->gain >= least() && (!best || found->is_better_than(*best)))
        best = std::move(found);
    };
    for (int i = 0; i < fullest_; ++i) {
      const Eqn& e = program_.eqn(i);
      if (is_view(e) || e.primitive->group || e.primitive->interpret || has_effect(e) ||
          std::none_of(e.out.begin(), e.out.end(),
                       [&](const VarRef& v) { return is_kept_long(held(v)); }) ||
          banned.count(e.out[0].get()))
        continue;
      std::optional<Change> move = moving(i);
      if (move) {
        take(std::move(move));
      } else if (is_cheap(e)) {
        for (int o = 0; o < static_cast<int>(e.out.size()); ++o)
          if (is_kept_long(held(e.out[static_cast<std::size_t>(o)]))) take(repeating(i, o));
      }
    }
    return best;
  }

  JaxprRef with(const Change& change) const {
    const Eqn& from = program_.eqn(change.eqn);
    std::vector<bool> drops(static_cast<std::size_t>(program_.size()), false);
    std::vector<int> views;  // the views that are computed again, too
    for (std::size_t o = 0; o < from.out.size(); ++o) {
      if (!change.moves() && static_cast<int>(o) != change.result) continue;
      const Views found = views_of(held_of(from.out[o]), change.at);
      views.insert(views.end(), found.late.begin(), found.late.end());
      for (int i : found.only_late) drops[static_cast<std::size_t>(i)] = true;
    }
    std::sort(views.begin(), views.end());
    Rewriter made(program_.jaxpr());
    made.reserve(static_cast<std::size_t>(program_.size()) + 1);
    for (int i = 0; i < program_.size(); ++i) {
      const Eqn& e = program_.eqn(i);
      if (drops[static_cast<std::size_t>(i)]) continue;
      if (i == change.eqn && change.before == i) {
        if (!change.moves() && e.out.size() > 1)
          made.add(part_of_fused(e, [&](std::size_t o) { return int(o) != change.result; }));
        continue;
      }
      if (i == change.at && change.reader) {
        made.add(*change.reader);
        continue;
      }
      if (i == change.at) {
        add_anew(change.made, made);
        for (int v : views) add_anew(program_.eqn(v), made);
      }
      made.keep(e);
    }
    return made.finish();
  }

 private:
  // The views of a value, seen from an equation `at`.
  struct Views {
    std::vector<int> late;       // made before `at` and read after that, also through other views
    std::vector<int> only_late;  // made before `at` and not read before it
  };

  std::int64_t need(int i) const { return needs_[static_cast<std::size_t>(i)]; }
  std::int64_t least() const {
    return static_cast<std::int64_t>(kSmallestGain * static_cast<double>(peak()));
  }
  std::size_t number(const Var* v) const { return static_cast<std::size_t>(program_.number(v)); }
  std::size_t held_of(const VarRef& v) const {
    return static_cast<std::size_t>(lifetimes_.number(v.get()));
  }
  const Lifetimes::Held& held(const VarRef& v) const { return lifetimes_.of(v.get()); }
  bool is_kept_long(const Lifetimes::Held& held) const {
    return held.born < fullest_ && held.last > fullest_ && held.last != Lifetimes::kToTheEnd &&
           held.bytes >= least();
  }

  // The equations that read a value or one of its views, without those that make views; in order.
  std::vector<int> readers_of(std::size_t held) const {
    std::vector<int> readers;
    for (const Var* v : members_[held])
      for (int i : program_.users(v))
        if (!is_view(program_.eqn(i))) readers.push_back(i);
    std::sort(readers.begin(), readers.end());
    return readers;
  }

  Views views_of(std::size_t held, int at) const {
    const std::vector<const Var*>& all = members_[held];
    Views views;
    std::vector<bool> early(all.size(), false), late(all.size(), false);
    for (std::size_t k = all.size(); k-- > 1;) {
      const int maker = program_.maker(Atom(VarRef(all[k])));
      if (maker >= at) continue;  // this view reads the new name of its operand
      for (int i : program_.users(all[k])) {
        if (!is_view(program_.eqn(i)))
          (i < at ? early : late)[k] = true;
        else if (i >= at)
          late[k] = true;
      }
      if (late[k]) views.late.push_back(maker);
      if (!early[k]) views.only_late.push_back(maker);
      const Var* source = program_.eqn(maker).in[0].var();
      for (std::size_t s = 0; s < k; ++s) {
        if (all[s] != source) continue;
        early[s] = early[s] || early[k];
        late[s] = late[s] || late[k];
      }
    }
    return views;
  }

  // The change that moves equation i behind the fullest equation; nothing if an equation up to the
  // fullest reads i's results.
  std::optional<Change> moving(int i) const {
    const Eqn& e = program_.eqn(i);
    Change change;
    change.eqn = change.before = i;
    change.at = program_.size();
    std::int64_t bytes = 0;
    for (const VarRef& v : e.out) {
      const std::vector<int> readers = readers_of(held_of(v));
      if (held(v).last == Lifetimes::kToTheEnd) return std::nullopt;
      if (readers.empty()) continue;
      if (readers.front() <= fullest_) return std::nullopt;
      change.at = std::min(change.at, readers.front());
      bytes += held(v).bytes;
    }
    for (const VarRef& v : e.out)
      if (!may_be_made_again(held_of(v), change.at)) return std::nullopt;
    change.made = e;
    if (!finds_room(change, bytes)) return std::nullopt;
    return change;
  }

  // The change that computes result o of equation i again.
  std::optional<Change> repeating(int i, int o) const {
    const Eqn& e = program_.eqn(i);
    const VarRef& v = e.out[static_cast<std::size_t>(o)];
    const std::vector<int> readers = readers_of(held_of(v));
    const auto next = std::lower_bound(readers.begin(), readers.end(), fullest_);
    if (next == readers.end() || *next == fullest_) return std::nullopt;
    Change change;
    change.eqn = i;
    change.result = o;
    change.before = next == readers.begin() ? i : *(next - 1);
    change.at = *next;
    if (!may_be_made_again(held_of(v), change.at)) return std::nullopt;
    change.made =
        e.out.size() == 1 ? e : part_of_fused(e, [&](std::size_t r) { return int(r) == o; });
    if (draws(change.made) || !finds_room(change, held(v).bytes)) return std::nullopt;
    if (change.before != i) change.ns = rates_.ns(estimated_work(change.made));
    if (readers.back() == change.at) change.reader = reader_of(change);
    return change;
  }

  bool may_be_made_again(std::size_t held, int at) const {
    if (members_[held].size() > kMostMembers) return false;
    const Views views = views_of(held, at);
    return std::none_of(views.late.begin(), views.late.end(), [&](int i) {
      const Primitive* p = program_.eqn(i).primitive;
      return p->group || p == &optimization_barrier_p;
    });
  }

  // True if no equation needs as much memory as the peak is now, after `bytes` are free up to the
  // change's equation while its operands are kept until there. Sets change.gain.
  bool finds_room(Change& change, std::int64_t bytes) const {
    struct KeptOperand {
      int from;
      std::int64_t bytes;
    };
    std::vector<KeptOperand> kept;
    std::vector<int> seen;
    int begin = change.before + 1;
    for (const Atom& operand : change.made.in) {
      if (operand.is_literal()) continue;
      const Lifetimes::Held& read = held(operand.ref());
      const int h = lifetimes_.number(operand.var());
      if (read.last >= change.at || std::find(seen.begin(), seen.end(), h) != seen.end()) continue;
      seen.push_back(h);
      // An argument may have been donated, and the last reader may have overwritten an operand.
      kept.push_back({std::max(read.last, 0), read.bytes});
      begin = std::min(begin, kept.back().from);
    }
    for (int i = begin; i <= change.at; ++i) {
      std::int64_t more = i > change.before && i < change.at ? -bytes : 0;
      for (const KeptOperand& k : kept)
        if (k.from <= i) more += k.bytes;
      if (i == fullest_) change.gain = -more;
      if (more > 0 && need(i) + more >= peak()) return false;
    }
    return change.gain > 0;
  }

  // Equation change.at, the value's only reader from there on, with the computation inside it.
  std::optional<Eqn> reader_of(const Change& change) const {
    const Eqn& e = program_.eqn(change.at);
    const VarRef& v = program_.eqn(change.eqn).out[static_cast<std::size_t>(change.result)];
    if (!may_fuse_) return std::nullopt;
    const Var* read = nullptr;
    for (const Atom& x : e.in) {
      if (x.is_literal() || held_of(x.ref()) != held_of(v)) continue;
      if (read && x.var() != read) return std::nullopt;
      read = x.var();
    }
    if (read->type.size() != v->type.size()) return std::nullopt;  // a part of v
    return computed_inside(e, read, change.made);
  }

  // Adds an equation with new results; later equations read these in place of the old ones.
  static void add_anew(Eqn e, Rewriter& made) {
    std::vector<VarRef> old = e.out;
    for (VarRef& v : e.out) v = make_ref<const Var>(v->type);
    const std::vector<VarRef> fresh = e.out;
    made.keep(std::move(e));
    for (std::size_t o = 0; o < old.size(); ++o) made.become(old[o].get(), Atom(fresh[o]));
  }

  const Rates& rates_;
  const bool may_fuse_;
  const ProgramIndex program_;
  const Lifetimes lifetimes_;
  const std::vector<std::int64_t> needs_;         // by equation
  const int fullest_;                             // the first equation that needs the most
  std::vector<std::vector<const Var*>> members_;  // a value and its views, in order
};

// False if the program's peak of memory cannot reach kSmallestPeak, or no value is large enough for
// its removal to count. A program that calls others may have a peak inside them.
bool may_be_large(const Jaxpr& jaxpr, const detail::MeshImpl* mesh) {
  const std::int64_t devices = mesh && mesh->fully_addressable() ? mesh->size() : 1;
  std::int64_t largest = 0, all = 0;
  bool any_inside = false;
  for (const Eqn& e : jaxpr.eqns) {
    any_inside |= e.primitive->interpret != nullptr;
    for (const VarRef& v : e.out) {
      const std::int64_t bytes = v->type.nbytes() * devices;
      largest = std::max(largest, bytes);
      all += bytes;
    }
  }
  return (any_inside || all >= kSmallestPeak) &&
         static_cast<double>(largest) >= kSmallestGain * static_cast<double>(kSmallestPeak);
}

}  // namespace

JaxprRef rematerialize(const Jaxpr& jaxpr, const detail::MeshImpl* mesh, DeviceKind kind,
                       const Rates& rates) {
  if (!may_be_large(jaxpr, mesh)) return JaxprRef(&jaxpr);
  Setting setting{mesh, kind, rates};
  std::vector<JaxprRef> versions{JaxprRef(&jaxpr)};  // keeps the variables alive
  auto memory = std::make_unique<Memory>(jaxpr, setting);
  std::int64_t peak_kept = memory->peak();
  if (peak_kept < kSmallestPeak) return versions[0];
  const double noticeable = kSmallestFall * static_cast<double>(peak_kept);
  const double most_ns = (1 + kMostWork) * memory->ns();
  std::size_t kept = 0;
  std::unordered_set<const Var*> banned;
  for (int tried = 0; tried < kMostChanges; ++tried) {
    const std::optional<Change> change = memory->best(banned);
    if (!change) break;
    const JaxprRef next = memory->with(*change);
    auto then = std::make_unique<Memory>(*next, setting);
    if (then->ns() > most_ns) {
      banned.insert(versions.back()->eqns[static_cast<std::size_t>(change->eqn)].out[0].get());
      continue;
    }
    versions.push_back(next);
    memory = std::move(then);
    if (static_cast<double>(peak_kept - memory->peak()) < noticeable) continue;
    kept = versions.size() - 1;
    peak_kept = memory->peak();
  }
  return versions[kept];
}

void register_pass_rematerialize() {
  register_pass({.order = PassOrder::rematerialize,
                 .name = "rematerialize",
                 .run =
                     [](const Jaxpr& jaxpr, const PassContext& context) {
                       return rematerialize(jaxpr, &context.mesh, context.kind(),
                                            rates(context.kind()));
                     },
                 .runs_on = [](DeviceKind) { return env::flag(env::Var::rematerialize); },
                 .merges = true});
}

}  // namespace shmap
