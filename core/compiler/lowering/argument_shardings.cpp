#include "core/compiler/lowering/argument_shardings.h"

#include <algorithm>
#include <unordered_map>

#include "core/compiler/lowering/lower.h"
#include "core/compiler/lowering/sharding_constraint.h"
#include "core/compiler/passes/inline_calls.h"
#include "core/ir/types_of.h"

namespace shmap {

namespace {

// Records with which shardings a program takes its arguments while it is lowered.
class RequestedShardings final : public LowerLog {
 public:
  struct Uses {
    // Of the shardings that constraints give the argument and those to which operations move it,
    // the first in the order of the program.
    const Sharding* first = nullptr;
    std::vector<const Sharding*> all;  // all shardings, each once
    void add(const Sharding* s) {
      if (std::find(all.begin(), all.end(), s) == all.end()) all.push_back(s);
    }
  };
  explicit RequestedShardings(std::size_t arguments) : uses(arguments) {}
  std::vector<Uses> uses;

  void argument(std::size_t index, const LowerValue& x) override { index_[x.block.node()] = index; }

  void begin_eqn(const Eqn& e, std::span<const LowerValue> in) override {
    open_.push_back({&e, {in.begin(), in.end()}, {}});
    if (!is_sharding_constraint(*e.primitive)) return;
    // Also where the argument has that sharding already, so that nothing moves it.
    if (Uses* u = find(in[0]); u && !u->first)
      u->first = params_as<ConstraintParams>(*e.params).sharding;
  }
  void planned(const Partition& plan, const PartitionReasons&) override {
    for (std::size_t i = 0; i < open_.back().in.size(); ++i)
      if (Uses* u = find(open_.back().in[i])) u->add(plan.operands[i]);
  }
  void moved(const LowerValue& x, const Sharding* to, const std::string&,
             std::span<const Eqn>) override {
    Uses* u = find(x);
    if (!u) return;
    if (!u->first) u->first = to;
    u->add(to);
    if (!open_.empty()) open_.back().seen.push_back(x.block.node());
  }
  // The equations of a called program are recorded one by one.
  void begin_program(const Jaxpr&, std::span<const LowerValue> arguments) override {
    if (open_.empty()) return;
    for (const LowerValue& x : arguments) open_.back().seen.push_back(x.block.node());
  }
  void end_program(const Jaxpr&, std::span<const LowerValue> results) override {
    for (const LowerValue& x : results)
      if (Uses* u = find(x); u && open_.empty()) u->add(x.sharding);
  }
  // An equation with programs inside that does not move an operand takes it with its own sharding.
  void end_eqn(const Eqn& e, std::span<const LowerValue>, std::span<const Eqn>) override {
    const Open now = std::move(open_.back());
    open_.pop_back();
    if (!e.primitive->lower) return;
    for (const LowerValue& x : now.in) {
      Uses* u = find(x);
      if (u && std::find(now.seen.begin(), now.seen.end(), x.block.node()) == now.seen.end())
        u->add(x.sharding);
    }
  }

 private:
  struct Open {
    const Eqn* eqn;
    std::vector<LowerValue> in;
    std::vector<const detail::NodeBase*> seen;
  };
  Uses* find(const LowerValue& x) {
    if (!x.sharding) return nullptr;
    const auto it = index_.find(x.block.node());
    return it == index_.end() ? nullptr : &uses[it->second];
  }
  std::unordered_map<const detail::NodeBase*, std::size_t> index_;
  std::vector<Open> open_;
};

// Lowers the program for these shardings. Null where it works on other meshes too.
std::unique_ptr<RequestedShardings> requested_shardings(
    const Jaxpr& jaxpr, const detail::MeshImpl* mesh,
    const std::vector<const Sharding*>& shardings) {
  auto requested = std::make_unique<RequestedShardings>(shardings.size());
  Lowering lowering(mesh, requested.get());
  std::vector<LowerValue> args;
  for (std::size_t i = 0; i < shardings.size(); ++i) {
    args.push_back(lowering.argument(jaxpr.binders[i]->type, shardings[i]));
    requested->argument(i, args.back());
  }
  try {
    lowering.program(jaxpr, std::move(args));
  } catch (const OtherMesh&) {
    return nullptr;
  }
  return requested;
}

// The shardings that constraints on results ask of the arguments, carried back through the factors
// that operations share between results and operands.
VarMap<const Sharding*> wanted_by_results(const Jaxpr& jaxpr, const detail::MeshImpl* mesh) {
  VarMap<const Sharding*> wants;
  const auto want = [&](const Atom& a, const Sharding* s) {
    if (!a.is_literal() && s && !s->is_replicated()) wants.try_emplace(a.var(), s);
  };
  for (auto e = jaxpr.eqns.rbegin(); e != jaxpr.eqns.rend(); ++e) {
    if (is_sharding_constraint(*e->primitive)) {
      const Sharding* s = params_as<ConstraintParams>(*e->params).sharding;
      if (s->mesh() == mesh) want(e->in[0], s);
      continue;
    }
    if (e->primitive->lower) continue;
    std::vector<const Sharding*> results;
    bool any = false;
    for (const VarRef& v : e->out) {
      const auto it = wants.find(v.get());
      results.push_back(it == wants.end() ? nullptr : it->second);
      any = any || results.back();
    }
    if (!any) continue;
    const std::vector<const Sharding*> operands = operands_for_results(
        *e->primitive, types_of(e->in), types_of(e->out), *e->params, results, mesh);
    for (std::size_t i = 0; i < operands.size(); ++i) want(e->in[i], operands[i]);
  }
  return wants;
}

}  // namespace

std::vector<const Sharding*> argument_shardings(const Jaxpr& jaxpr, std::size_t consts,
                                                const detail::MeshImpl* mesh,
                                                std::span<const Sharding* const> given) {
  std::vector<const Sharding*> known(consts, mesh->replicated());
  known.insert(known.end(), given.begin(), given.end());
  const auto filled = [&] {
    std::vector<const Sharding*> all = known;
    for (const Sharding*& s : all)
      if (!s) s = mesh->replicated();
    return all;
  };
  const auto result = [&] {
    std::vector<const Sharding*> all = filled();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(consts));
    return all;
  };
  const auto missing = [&] {
    return std::find(known.begin(), known.end(), nullptr) != known.end();
  };
  if (!missing()) return result();
  // The sharding of one argument may decide those of others: repeated while a round finds more.
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds && missing(); ++round) {
    const auto requested = requested_shardings(jaxpr, mesh, filled());
    if (!requested) return result();
    bool found = false;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i] || !requested->uses[i].first) continue;
      known[i] = requested->uses[i].first;
      found = true;
    }
    if (found) continue;
    const JaxprRef flat = inline_calls(jaxpr);
    const VarMap<const Sharding*> wants = wanted_by_results(*flat, mesh);
    for (std::size_t i = 0; i < known.size(); ++i) {
      const auto it = wants.find(flat->binders[i].get());
      if (known[i] || it == wants.end()) continue;
      known[i] = it->second;
      found = true;
    }
    if (!found) break;
  }
  return result();
}

std::vector<const Sharding*> constant_shardings(const Jaxpr& jaxpr, std::size_t consts,
                                                const detail::MeshImpl* mesh,
                                                std::span<const Sharding* const> arguments) {
  std::vector<const Sharding*> all(consts, mesh->replicated());
  bool any = false;  // whether there is a constant that could be split
  for (std::size_t i = 0; i < consts; ++i) any = any || jaxpr.binders[i]->type.rank() > 0;
  if (!any || mesh->size() == 1) return all;
  std::vector<const Sharding*> shardings = all;
  shardings.insert(shardings.end(), arguments.begin(), arguments.end());
  const auto requested = requested_shardings(jaxpr, mesh, shardings);
  if (!requested) return all;
  for (std::size_t i = 0; i < consts; ++i)
    if (requested->uses[i].all.size() == 1) all[i] = requested->uses[i].all[0];
  return all;
}

}  // namespace shmap
