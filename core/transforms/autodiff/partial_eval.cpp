#include "core/transforms/autodiff/partial_eval.h"

#include <algorithm>

namespace shmap {

constinit thread_local PruneMemo* SplitScope::memo_ = nullptr;

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
struct Part {
  std::shared_ptr<const Params> params;  // null: the equation as it is
  Mask in, out;                          // which operands and results the part has
};

Part part_of(const Primitive& primitive, const Params& params, std::size_t operands,
             const Mask& wanted, PruneMemo& memo) {
  PruneCall call{params, wanted, memo, nullptr, {}, {}};
  primitive.prune(call);
  if (!call.pruned) return {nullptr, Mask(operands, true), Mask(wanted.size(), true)};
  return {std::move(call.pruned), std::move(call.kept_in), std::move(call.kept_out)};
}

// Which of n results of an operation depend on the operands in `linear`.
Mask dependent(const Primitive& primitive, const Params& params, const Mask& linear, std::size_t n,
               PruneMemo& memo) {
  if (!any(linear)) return Mask(n, false);
  if (!primitive.prune || all(linear)) return Mask(n, true);
  const std::vector<const Jaxpr*> inside = inner_jaxprs(params);
  for (const Jaxpr* program : inside)
    if (std::any_of(program->eqns.begin(), program->eqns.end(), has_effect)) return Mask(n, true);
  if (primitive.control_flow == ControlFlow::none && inside.size() == 1 &&
      inside[0]->binders.size() == linear.size() && inside[0]->outs.size() == n)
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

template <class T>
std::vector<T> chosen(std::span<const T> items, const Mask& kept) {
  std::vector<T> some;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (kept[i]) some.push_back(items[i]);
  return some;
}

// Hands the part to the trace, which must be current, and writes its results in `wanted` to `out`.
void process_part(Trace& trace, const Primitive& primitive, const Part& part, const Params& params,
                  std::span<const Array> in, const Mask& wanted, std::span<Array> out,
                  SourceLine source) {
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

bool take_apart(JaxprTrace& linear, const Primitive& primitive, std::span<Array> in,
                const Params& params, std::span<Array> out, SourceLine source) {
  Mask staged;
  for (const Array& x : in) staged.push_back(linear.is_staged(x));
  const SplitScope split;
  PruneMemo& memo = split.memo();
  const Mask rest = dependent(primitive, params, staged, out.size(), memo);
  if (all(rest)) return false;
  const Mask known = flipped(rest);
  {
    TraceScope scope(*linear.below());
    process_part(*linear.below(), primitive, part_of(primitive, params, in.size(), known, memo),
                 params, in, known, out, source);
  }
  if (!any(rest)) return true;
  const PartialEvaluation done(linear, nullptr);
  process_part(linear, primitive, part_of(primitive, params, in.size(), rest, memo), params, in,
               rest, out, source);
  return true;
}

Eqn part_eqn(const Eqn& eqn, const Part& part, const Mask& wanted) {
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
  PruneMemo& memo = scope.memo();
  Dependent vars(jaxpr, linear);
  for (const Eqn& e : jaxpr.eqns)
    vars.add(e.out, dependent(*e.primitive, *e.params, vars.among(e.in), e.out.size(), memo));
  return vars.among(jaxpr.outs);
}

JaxprRef split_equations(const Jaxpr& jaxpr, const Mask& linear) {
  const SplitScope scope;
  PruneMemo& memo = scope.memo();
  Dependent vars(jaxpr, linear);
  std::vector<Eqn> eqns;
  for (std::size_t e = 0; e < jaxpr.eqns.size(); ++e) {
    const Eqn& eqn = jaxpr.eqns[e];
    const Mask rest =
        dependent(*eqn.primitive, *eqn.params, vars.among(eqn.in), eqn.out.size(), memo);
    vars.add(eqn.out, rest);
    if (!any(rest) || all(rest)) {
      if (!eqns.empty()) eqns.push_back(eqn);
      continue;
    }
    if (eqns.empty())
      eqns.assign(jaxpr.eqns.begin(), jaxpr.eqns.begin() + static_cast<std::ptrdiff_t>(e));
    for (const Mask& wanted : {flipped(rest), rest}) {
      const Part part = part_of(*eqn.primitive, *eqn.params, eqn.in.size(), wanted, memo);
      eqns.push_back(part_eqn(eqn, part, wanted));
    }
  }
  if (eqns.empty()) return JaxprRef(&jaxpr);
  return jaxpr_like(jaxpr, jaxpr.binders, std::move(eqns), jaxpr.outs);
}

PartialEvaluation::PartialEvaluation(JaxprTrace& linear) : PartialEvaluation(linear, take_apart) {}

PartialEvaluation::PartialEvaluation(JaxprTrace& linear, JaxprTrace::TakeApart f)
    : linear_(linear), before_(linear.set_take_apart(f)) {}

PartialEvaluation::~PartialEvaluation() { linear_.set_take_apart(before_); }

}  // namespace shmap
