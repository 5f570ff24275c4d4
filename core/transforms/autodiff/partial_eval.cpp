#include "core/transforms/autodiff/partial_eval.h"

#include <algorithm>
#include <map>

#include "core/ir/nesting.h"

namespace shmap {

constinit thread_local SplitScope::Memo* SplitScope::memo_ = nullptr;

namespace {

using Mask = std::vector<bool>;

bool any(const Mask& mask) { return std::find(mask.begin(), mask.end(), true) != mask.end(); }
bool all(const Mask& mask) { return std::find(mask.begin(), mask.end(), false) == mask.end(); }
Mask flipped(Mask mask) {
  mask.flip();
  return mask;
}

// The variables of a program that depend on linear arguments.
class Dependent {
 public:
  Dependent(const Jaxpr& jaxpr, const Mask& linear) {
    for (std::size_t i = 0; i < linear.size(); ++i)
      if (linear[i]) vars_.emplace(jaxpr.binders[i].get(), true);
  }
  bool has(const Atom& a) const { return !a.is_literal() && vars_.count(a.var()); }
  Mask among(std::span<const Atom> atoms) const {
    Mask mask;
    for (const Atom& a : atoms) mask.push_back(has(a));
    return mask;
  }
  void add(std::span<const VarRef> vars, const Mask& which) {
    for (std::size_t v = 0; v < vars.size(); ++v)
      if (which[v]) vars_.emplace(vars[v].get(), true);
  }

 private:
  VarMap<bool> vars_;
};

// An equation with only those results that are wanted, and what else it has to keep.
struct PartialEqn {
  std::shared_ptr<const Params> params;  // null: the equation as it is
  Mask in, out;                          // which operands and results the part has
};

PartialEqn part_of(const Primitive& primitive, const Params& params, std::size_t operands,
                   const Mask& wanted, PruneMemo& memo) {
  PruneCall call{params, wanted, memo, nullptr, {}, {}};
  primitive.programs.prune(call);
  if (!call.pruned) return {nullptr, Mask(operands, true), Mask(wanted.size(), true)};
  return {std::move(call.pruned), std::move(call.kept_in), std::move(call.kept_out)};
}

// Which of n results of an operation depend on the operands in `linear`.
Mask dependent(const Primitive& primitive, const Params& params, const Mask& linear, std::size_t n,
               PruneMemo& memo) {
  if (!any(linear)) return Mask(n, false);
  if (!primitive.programs.prune || all(linear)) return Mask(n, true);
  if (primitive.programs.depends) return primitive.programs.depends(params, linear);
  const std::vector<const Jaxpr*> inside = inner_jaxprs(params);
  if (inside.size() == 1 && inside[0]->binders.size() == linear.size() &&
      inside[0]->outs.size() == n)
    return dependent_results(*inside[0], linear);
  Mask found(n);
  for (std::size_t o = 0; o < n; ++o) {
    Mask alone(n);
    alone[o] = true;
    const Mask reads = part_of(primitive, params, linear.size(), alone, memo).in;
    for (std::size_t i = 0; i < reads.size(); ++i) found[o] = found[o] || (reads[i] && linear[i]);
  }
  return found;
}

// Whether the linear program repeats the inner programs' work on primals: checkpoint recomputes
// values, while_loop repeats its trips.
bool runs_again(const Primitive& p) {
  return p.programs.stays_apart || p.programs.control_flow == ControlFlow::while_loop;
}

// Collects the equations with effects of a program and its inner programs; the value is true if the
// linear program repeats the effect. `again`: whether it repeats this program.
void find_effects(const Jaxpr& jaxpr, bool again, std::map<const Eqn*, bool>& found) {
  for (const Eqn& e : jaxpr.eqns) {
    if (!has_effect(e)) continue;
    if (!e.primitive->programs.prune) {
      found[&e] = found[&e] || again;
      continue;
    }
    for (const Jaxpr* inner : inner_jaxprs(*e.params))
      find_effects(*inner, again || runs_again(*e.primitive), found);
  }
}

// An operation with programs inside, split in two: the known part, which computes results that
// depend on primals alone, and the rest.
class SplitEqn {
 public:
  // linear: which operands depend on tangents; results: how many there are.
  SplitEqn(const Primitive& primitive, const Params& params, const Mask& linear,
           std::size_t results, PruneMemo& memo)
      : primitive_(primitive),
        params_(params),
        operands_(linear.size()),
        memo_(memo),
        rest_(dependent(primitive, params, linear, results, memo)) {
    if (!primitive.programs.prune || !any(linear)) return;
    std::map<const Eqn*, bool> effects;
    for (const Jaxpr* program : inner_jaxprs(params))
      find_effects(*program, runs_again(primitive), effects);
    for (const auto& [e, again] : effects) {
      const EffectSet alone{e};
      PruneMemo of_one{&alone, {}};
      const Mask reads = part_of(primitive, params, operands_, Mask(results, false), of_one).in;
      bool depends = false;
      for (std::size_t i = 0; i < reads.size(); ++i) depends = depends || (reads[i] && linear[i]);
      if (!depends) known_effects_.insert(e);
      if (depends || again) rest_effects_.insert(e);
    }
  }

  const Mask& rest() const { return rest_; }  // the results that depend on tangents
  bool has_known() const { return !all(rest_) || !known_effects_.empty(); }
  bool has_rest() const { return any(rest_) || !rest_effects_.empty(); }
  PartialEqn known_part() const { return part(flipped(rest_), known_effects_); }
  PartialEqn rest_part() const { return part(rest_, rest_effects_); }

 private:
  PartialEqn part(const Mask& wanted, const EffectSet& effects) const {
    if (known_effects_.empty() && rest_effects_.empty())
      return part_of(primitive_, params_, operands_, wanted, memo_);
    PruneMemo memo{&effects, {}};
    return part_of(primitive_, params_, operands_, wanted, memo);
  }

  const Primitive& primitive_;
  const Params& params_;
  std::size_t operands_;
  PruneMemo& memo_;
  Mask rest_;
  EffectSet known_effects_, rest_effects_;
};

template <class T>
std::vector<T> chosen(std::span<const T> items, const Mask& kept) {
  std::vector<T> some;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (kept[i]) some.push_back(items[i]);
  return some;
}

// Hands the part to the trace, which must be current, and writes its results in `wanted` to `out`.
void process_part(Trace& trace, const Primitive& primitive, const PartialEqn& part,
                  const Params& params, std::span<const Array> in, const Mask& wanted,
                  std::span<Array> out, SourceLine source) {
  std::vector<Array> operands = chosen(in, part.in);
  std::vector<Array> results(
      static_cast<std::size_t>(std::count(part.out.begin(), part.out.end(), true)));
  trace.process(primitive, operands, part.params ? *part.params : params, results, source);
  for (std::size_t o = 0, next = 0; o < out.size(); ++o) {
    if (!part.out[o]) continue;
    if (wanted[o]) out[o] = std::move(results[next]);
    ++next;
  }
}

// The hook: stages only the part of the operation that depends on tangents.
bool evaluate_partially(JaxprTrace& linear, const Primitive& primitive, std::span<Array> in,
                        const Params& params, std::span<Array> out, SourceLine source) {
  Mask staged;
  for (const Array& x : in) staged.push_back(linear.is_staged(x));
  const SplitScope split;
  const SplitEqn parts(primitive, params, staged, out.size(), split.memo());
  if (!parts.has_known()) return false;
  {
    TraceScope scope(*linear.below());
    process_part(*linear.below(), primitive, parts.known_part(), params, in, flipped(parts.rest()),
                 out, source);
  }
  if (!parts.has_rest()) return true;
  const PartialEvaluation done(linear, nullptr);
  process_part(linear, primitive, parts.rest_part(), params, in, parts.rest(), out, source);
  return true;
}

Eqn part_eqn(const Eqn& eqn, const PartialEqn& part, const Mask& wanted) {
  Eqn made{eqn.primitive,
           chosen(std::span<const Atom>(eqn.in), part.in),
           part.params ? part.params : eqn.params,
           {},
           eqn.source};
  for (std::size_t o = 0; o < eqn.out.size(); ++o)
    if (part.out[o])
      made.out.push_back(wanted[o] ? eqn.out[o] : make_ref<const Var>(eqn.out[o]->type));
  return made;
}

}  // namespace

Mask dependent_results(const Jaxpr& jaxpr, const Mask& linear) {
  const SplitScope scope;
  const std::pair key(&jaxpr, linear);
  auto& known = SplitScope::memo_->dependents;
  if (const auto it = known.find(key); it != known.end()) return it->second.results;
  const PassVisit visit("finding what depends on tangents", jaxpr);
  Dependent vars(jaxpr, linear);
  for (const Eqn& e : jaxpr.eqns)
    vars.add(e.out,
             dependent(*e.primitive, *e.params, vars.among(e.in), e.out.size(), scope.memo()));
  Mask results = vars.among(jaxpr.outs);
  known[key] = {JaxprRef(&jaxpr), results};
  return results;
}

JaxprRef split_equations(const Jaxpr& jaxpr, const Mask& linear) {
  const SplitScope scope;
  PruneMemo& memo = scope.memo();
  Dependent vars(jaxpr, linear);
  std::vector<Eqn> eqns;
  for (std::size_t e = 0; e < jaxpr.eqns.size(); ++e) {
    const Eqn& eqn = jaxpr.eqns[e];
    const SplitEqn parts(*eqn.primitive, *eqn.params, vars.among(eqn.in), eqn.out.size(), memo);
    const Mask& rest = parts.rest();
    vars.add(eqn.out, rest);
    if (!any(rest) || all(rest)) {
      if (!eqns.empty()) eqns.push_back(eqn);
      continue;
    }
    if (eqns.empty())
      eqns.assign(jaxpr.eqns.begin(), jaxpr.eqns.begin() + static_cast<std::ptrdiff_t>(e));
    eqns.push_back(part_eqn(eqn, parts.known_part(), flipped(rest)));
    eqns.push_back(part_eqn(eqn, parts.rest_part(), rest));
  }
  if (eqns.empty()) return JaxprRef(&jaxpr);
  return jaxpr_like(jaxpr, jaxpr.binders, std::move(eqns), jaxpr.outs);
}

PartialEvaluation::PartialEvaluation(JaxprTrace& linear)
    : PartialEvaluation(linear, evaluate_partially) {}

PartialEvaluation::PartialEvaluation(JaxprTrace& linear, JaxprTrace::PartialEvalHook hook)
    : linear_(linear), before_(linear.set_partial_eval_hook(hook)) {}

PartialEvaluation::~PartialEvaluation() { linear_.set_partial_eval_hook(before_); }

}  // namespace shmap
