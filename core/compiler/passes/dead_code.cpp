#include "core/compiler/passes/dead_code.h"

#include <algorithm>
#include <utility>

#include "core/base/pointer_map.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ir/nesting.h"

namespace shmap {

const EffectSet no_effects;

namespace {

// Whether the equation stays although nothing reads its results.
bool stays_for_effect(const Eqn& eqn, const EffectSet* effects) {
  if (!has_effect(eqn)) return false;
  if (effects == nullptr) return true;
  if (!eqn.primitive->programs.prune) return effects->count(&eqn) != 0;
  for (const Jaxpr* inner : inner_jaxprs(*eqn.params))
    for (const Eqn& e : inner->eqns)
      if (stays_for_effect(e, effects)) return true;
  return false;
}

template <class T>
void keep_only(std::vector<T>& items, const std::vector<bool>& kept) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!kept[i]) continue;
    if (n != i) items[n] = std::move(items[i]);
    ++n;
  }
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(n), items.end());
}

class Remover {
 public:
  Remover(const Jaxpr& jaxpr, PruneMemo& memo)
      : jaxpr_(jaxpr), memo_(memo), made_(jaxpr), live_(jaxpr.eqns.size()) {}

  // Visits the equations from last to first. A value is live where an equation that stays reads it.
  void run(const std::vector<Atom>& outs) {
    for (const Atom& a : outs) read(a);
    for (std::size_t e = jaxpr_.eqns.size(); e-- > 0;) {
      const Eqn& eqn = jaxpr_.eqns[e];
      const bool kept = std::any_of(eqn.out.begin(), eqn.out.end(),
                                    [&](const VarRef& v) { return is_live(v); }) ||
                        stays_for_effect(eqn, memo_.effects);
      if (!kept) {
        made_.remove(static_cast<int>(e));
      } else if (!eqn.primitive->programs.prune || !prune(e)) {
        for (const Atom& a : eqn.in) read(a);
      }
    }
  }

  bool changed() const { return made_.is_edited(); }
  bool is_live(const VarRef& v) const { return live_.find(v.get()) != nullptr; }
  Rewriter& made() { return made_; }

 private:
  void read(const Atom& a) {
    if (!a.is_literal()) live_[a.var()] = true;
  }

  bool prune(std::size_t e) {
    std::vector<bool> wanted;
    for (const VarRef& v : jaxpr_.eqns[e].out) wanted.push_back(is_live(v));
    PruneCall call{*jaxpr_.eqns[e].params, wanted, memo_, nullptr, {}, {}};
    jaxpr_.eqns[e].primitive->programs.prune(call);
    if (!call.pruned) return false;
    Eqn eqn = jaxpr_.eqns[e];
    eqn.params = std::move(call.pruned);
    keep_only(eqn.in, call.kept_in);
    keep_only(eqn.out, call.kept_out);
    for (const Atom& a : eqn.in) read(a);
    made_.put(static_cast<int>(e), std::move(eqn));
    return true;
  }

  const Jaxpr& jaxpr_;
  PruneMemo& memo_;
  Rewriter made_;
  PointerMap<bool> live_;
};

}  // namespace

JaxprRef remove_dead_code(const Jaxpr& jaxpr) {
  PruneMemo memo;
  return remove_dead_code(jaxpr, memo);
}

JaxprRef remove_dead_code(const Jaxpr& jaxpr, PruneMemo& memo) {
  const PassVisit visit("remove_dead_code", jaxpr);
  Remover remover(jaxpr, memo);
  remover.run(jaxpr.outs);
  return remover.changed() ? remover.made().finish() : JaxprRef(&jaxpr);
}

PrunedJaxpr prune_jaxpr(const Jaxpr& jaxpr, const std::vector<bool>& wanted) {
  PruneMemo memo;
  return prune_jaxpr(jaxpr, wanted, memo);
}

PrunedJaxpr prune_jaxpr(const Jaxpr& jaxpr, const std::vector<bool>& wanted, PruneMemo& memo) {
  const auto known = memo.pruned.find({&jaxpr, wanted});
  if (known != memo.pruned.end()) return known->second.pruned;
  const PassVisit visit("prune_jaxpr", jaxpr);
  std::vector<Atom> outs = jaxpr.outs;
  keep_only(outs, wanted);
  Remover remover(jaxpr, memo);
  remover.run(outs);
  PrunedJaxpr pruned;
  pruned.changed = remover.changed();
  for (const VarRef& v : jaxpr.binders) pruned.kept.push_back(remover.is_live(v));
  std::vector<VarRef> binders = jaxpr.binders;
  keep_only(binders, pruned.kept);
  const bool same = !remover.changed() && binders.size() == jaxpr.binders.size() &&
                    outs.size() == jaxpr.outs.size();
  pruned.jaxpr =
      same ? JaxprRef(&jaxpr) : remover.made().finish(std::move(binders), std::move(outs));
  check_pass(*pruned.jaxpr, "prune_jaxpr");
  memo.pruned[{&jaxpr, wanted}] = {JaxprRef(&jaxpr), pruned};
  return pruned;
}

}  // namespace shmap
