// Control flow as two equations: a primal one, which also returns the residuals, and a linear one.
#include <algorithm>
#include <utility>

#include "core/ops/rules.h"
#include "core/transforms/autodiff/derived.h"
#include "core/transforms/control_flow/derivatives.h"
#include "core/transforms/control_flow/staged_flow.h"

namespace shmap {

namespace {

// ---- scan

// The variables of a program that depend only on the arguments in `binders`, by equations that can
// be moved out of the loop. grows: includes equations whose results are larger than their operands.
VarMap<bool> invariant_variables(const Jaxpr& jaxpr, const Flags& binders, bool grows) {
  VarMap<bool> invariant;
  for (std::size_t i = 0; i < binders.size(); ++i)
    if (binders[i]) invariant.emplace(jaxpr.binders[i].get(), true);
  for (const Eqn& e : jaxpr.eqns) {
    std::int64_t bytes = 0;
    bool same = !has_effect(e);
    for (const Atom& a : e.in) {
      same = same && (a.is_literal() || invariant.count(a.var()));
      bytes += a.type().nbytes();
    }
    for (const VarRef& v : e.out) bytes -= v->type.nbytes();
    if (!same || (!grows && bytes < 0)) continue;
    for (const VarRef& v : e.out) invariant.emplace(v.get(), true);
  }
  return invariant;
}

std::vector<Eqn> equations(const Jaxpr& jaxpr, const VarMap<bool>& of, bool inside) {
  std::vector<Eqn> eqns;
  for (const Eqn& e : jaxpr.eqns) {
    const bool is_of = !e.out.empty() && of.count(e.out[0].get());
    if (is_of == inside) eqns.push_back(e);
  }
  return eqns;
}

// The source of a residual of a trip's linear program.
struct Residual {
  enum Kind { invariant, of_xs, stacked } kind;
  // of_xs: the number of the x; stacked: the number of the result of the primal scan
  std::size_t at = 0;
  Array value;  // invariant
};

class LinearScan {
 public:
  LinearScan(JvpCall& call, const ScanLoopParams& p)
      : call_(call),
        p_(p),
        first_(count(p.num_consts)),
        carry_(count(p.num_carry)),
        active_(active_operands(call, 0)),
        made_(settle(active_, first_, carry_, call.out.size(),
                     [&](const Flags& in, const Flags& wanted) {
                       return *derived_linearization(p.jaxpr, in, wanted);
                     })) {}

  void run() {
    {
      TraceScope scope(call_.parent);
      run_primal();
    }
    run_linear();
  }

 private:
  std::span<const Array> xs() const { return call_.primals.subspan(first_ + carry_); }

  // The original scan, with residuals as additional ys.
  void run_primal() {
    const Jaxpr& primal = *made_.primal;
    const std::size_t results = call_.out.size();
    std::vector<Array> consts = made_.primal_consts;
    const std::size_t captured = consts.size();
    append_to(consts, call_.primals.subspan(0, first_));
    Flags same(primal.binders.size());
    std::fill_n(same.begin(), consts.size(), true);
    const VarMap<bool> invariant = invariant_variables(primal, same, true);
    VarMap<std::size_t> element_of, result_of;
    for (std::size_t i = captured + first_ + carry_; i < primal.binders.size(); ++i)
      element_of.emplace(primal.binders[i].get(), i - captured - first_ - carry_);
    std::vector<Atom> outs(primal.outs.begin(),
                           primal.outs.begin() + static_cast<std::ptrdiff_t>(results));
    for (std::size_t o = carry_; o < results; ++o)
      if (!outs[o].is_literal()) result_of.emplace(outs[o].var(), o);
    std::vector<Atom> outside;
    for (std::size_t r = results; r < primal.outs.size(); ++r) {
      const Atom& a = primal.outs[r];
      Residual& residual = residuals_.emplace_back();
      if (a.is_literal() || invariant.count(a.var())) {
        residual.kind = Residual::invariant;
        outside.push_back(a);
      } else if (const auto it = element_of.find(a.var()); it != element_of.end()) {
        residual.kind = Residual::of_xs;
        residual.at = it->second;
      } else {
        residual.kind = Residual::stacked;
        const auto [place, fresh] = result_of.try_emplace(a.var(), outs.size());
        residual.at = place->second;
        if (fresh) outs.push_back(a);
      }
    }
    const std::vector<VarRef> binders(
        primal.binders.begin(),
        primal.binders.begin() + static_cast<std::ptrdiff_t>(consts.size()));
    const std::vector<Array> values = eval_jaxpr(
        *program_of(primal, binders, equations(primal, invariant, true), outside), consts);
    auto value = values.begin();
    for (Residual& r : residuals_)
      if (r.kind == Residual::invariant) r.value = *value++;

    ClosedBody body{program_of(primal, primal.binders, primal.eqns, std::move(outs)),
                    std::move(consts)};
    const std::span<const Array> init = call_.primals.subspan(first_, carry_);
    results_ = stage_scan(site_of(call_), detail::BodyRef(body), {init.begin(), init.end()},
                          {xs().begin(), xs().end()}, p_.length, p_.reverse);
    std::copy_n(results_.begin(), results, call_.out.begin());
  }

  // The linear scan. Equations on tangents of constants alone move out of the loop. In the
  // transpose the cotangents of constants are then summed first, and a cast becomes a single psum.
  void run_linear() {
    const Jaxpr& linear = *made_.linear;
    std::vector<Array> consts, init, elements;
    std::vector<VarRef> const_vars, element_vars, carry_vars;
    const auto is_constant = [&](std::size_t i) { return i < first_; };
    std::size_t next = 0;
    Flags same;
    for (const Residual& r : residuals_) {
      const VarRef& var = linear.binders[next++];
      same.push_back(r.kind == Residual::invariant);
      if (same.back()) {
        const_vars.push_back(var);
        consts.push_back(r.value);
      } else {
        element_vars.push_back(var);
        elements.push_back(r.kind == Residual::of_xs ? xs()[r.at] : results_[r.at]);
      }
    }
    for (std::size_t i = 0; i < active_.size(); ++i) {
      if (!active_[i]) continue;
      const VarRef& var = linear.binders[next++];
      same.push_back(is_constant(i));
      Array tangent = or_zeros(call_.tangents[i], call_.type(i), call_.source);
      const bool carried = !is_constant(i) && i < first_ + carry_;
      (same.back() ? const_vars : carried ? carry_vars : element_vars).push_back(var);
      (same.back() ? consts : carried ? init : elements).push_back(std::move(tangent));
    }
    const VarMap<bool> invariant = invariant_variables(linear, same, false);
    std::vector<Eqn> before = equations(linear, invariant, true);
    std::vector<Atom> prepared;
    std::vector<VarRef> binders = const_vars;
    for (const Eqn& e : before) {
      for (const VarRef& v : e.out) {
        prepared.emplace_back(v);
        binders.push_back(v);
      }
    }
    binders.insert(binders.end(), carry_vars.begin(), carry_vars.end());
    binders.insert(binders.end(), element_vars.begin(), element_vars.end());
    ClosedBody body{
        program_of(linear, std::move(binders), equations(linear, invariant, false), linear.outs),
        consts};
    append_to(body.consts, eval_jaxpr(*program_of(linear, const_vars, std::move(before), prepared),
                                      std::move(consts)));
    const std::vector<Array> tangents =
        stage_scan(site_of(call_), detail::BodyRef(body), std::move(init), std::move(elements),
                   p_.length, p_.reverse);
    give_results(call_, made_.active_out, {}, tangents);
  }

  JvpCall& call_;
  const ScanLoopParams& p_;
  std::size_t first_, carry_;
  Flags active_;  // of the operands
  LinearizedProgram made_;
  std::vector<Residual> residuals_;
  std::vector<Array> results_;  // of the primal scan
};

}  // namespace

void linearize_scan(JvpCall& call, const ScanLoopParams& p) { LinearScan(call, p).run(); }

// ---- cond

namespace {

// Residuals that differ between branches share positions in the list that every branch returns. A
// type has as many positions as the branch with the most residuals of that type needs. Residuals
// that are operands, or constants of a branch, need no position.
class LinearCond {
 public:
  LinearCond(JvpCall& call, const CondParams& p)
      : call_(call),
        active_(active_operands(call, 1)),
        made_(
            join_active<LinearizedProgram>(p.branches, [&](const JaxprRef& b, const Flags& wanted) {
              return *derived_linearization(b, active_, wanted);
            })) {}

  void run() {
    if (!any_of(made_[0].active_out)) return call_.run();
    for (const LinearizedProgram& b : made_) place_residuals(b);
    {
      TraceScope scope(call_.parent);
      run_primal();
    }
    run_linear();
  }

 private:
  struct Residual {
    enum Kind { constant, operand, shared } kind;
    std::size_t at = 0;  // the number of the operand or of the shared position
    Array value;         // constant
  };

  void place_residuals(const LinearizedProgram& b) {
    const Jaxpr& primal = *b.primal;
    std::vector<Residual>& residuals = residuals_.emplace_back();
    std::vector<bool> taken(places_.size());
    for (std::size_t r = call_.out.size(); r < primal.outs.size(); ++r) {
      const Atom& a = primal.outs[r];
      if (a.is_literal()) {
        residuals.push_back({Residual::constant, 0, a.literal()});
        continue;
      }
      const auto binder = static_cast<std::size_t>(
          std::find(primal.binders.begin(), primal.binders.end(), a.ref()) -
          primal.binders.begin());
      if (binder < b.primal_consts.size()) {
        residuals.push_back({Residual::constant, 0, b.primal_consts[binder]});
      } else if (binder < primal.binders.size()) {
        residuals.push_back({Residual::operand, binder - b.primal_consts.size() + 1, Array()});
      } else {
        std::size_t at = 0;
        while (at < places_.size() && (taken[at] || !(places_[at] == a.type()))) ++at;
        if (at == places_.size()) {
          places_.push_back(a.type());
          taken.push_back(false);
        }
        taken[at] = true;
        residuals.push_back({Residual::shared, at, Array()});
      }
    }
  }

  void run_primal() {
    const std::size_t results = call_.out.size();
    std::vector<Primal> bodies;
    std::vector<detail::BodyRef> branches;
    bodies.reserve(made_.size());
    for (std::size_t b = 0; b < made_.size(); ++b) {
      bodies.push_back({*this, b});
      branches.emplace_back(bodies.back());
    }
    const std::vector<Array> all = stage_cond(site_of(call_), call_.primals[0], branches,
                                              branch_names(call_.type(0), branches.size()),
                                              {call_.primals.begin() + 1, call_.primals.end()});
    std::copy_n(all.begin(), results, call_.out.begin());
    shared_.assign(all.begin() + static_cast<std::ptrdiff_t>(results), all.end());
  }

  // Returns the results of a branch, then the value at each shared position.
  struct Primal {
    const LinearCond& cond;
    std::size_t branch;
    void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
      const LinearizedProgram& made = cond.made_[branch];
      const std::size_t results = cond.call_.out.size();
      std::vector<Array> args = made.primal_consts;
      append_to(args, leaves);
      std::vector<Array> outs = eval_jaxpr(*made.primal, std::move(args)), places;
      for (const ShapedArray& type : cond.places_) places.push_back(zeros_of(type, {}));
      const std::vector<Residual>& residuals = cond.residuals_[branch];
      for (std::size_t r = 0; r < residuals.size(); ++r)
        if (residuals[r].kind == Residual::shared)
          places[residuals[r].at] = std::move(outs[results + r]);
      outs.resize(results);
      append_to(outs, places);
      give_leaves(std::move(outs), result);
    }
  };

  // Takes the values at all shared positions, all operands, and the tangents.
  struct Linear {
    const LinearCond& cond;
    std::size_t branch;
    JaxprRef jaxpr;
    AxisSet axes;
    void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
      const std::size_t places = cond.places_.size(), operands = cond.call_.primals.size() - 1;
      std::vector<Array> args;
      for (const Residual& r : cond.residuals_[branch]) {
        args.push_back(r.kind == Residual::constant  ? widened(r.value, axes, cond.call_.source)
                       : r.kind == Residual::operand ? leaves[places + r.at - 1]
                                                     : leaves[r.at]);
      }
      append_to(args, std::span<const Array>(leaves).subspan(places + operands));
      give_leaves(eval_jaxpr(*jaxpr, std::move(args)), result);
    }
  };

  void run_linear() {
    const AxisSet axes = call_.type(0).axes();
    std::vector<Linear> bodies;
    std::vector<detail::BodyRef> branches;
    bodies.reserve(made_.size());
    for (std::size_t b = 0; b < made_.size(); ++b) {
      bodies.push_back({*this, b, widen_all(made_[b].linear, axes), axes});
      branches.emplace_back(bodies.back());
    }
    std::vector<Array> arguments;
    for (const Array& x : shared_) arguments.push_back(widened(x, axes, call_.source));
    // A scalar replaces each operand that no branch's linear part reads.
    for (std::size_t i = 1; i < call_.primals.size(); ++i)
      arguments.push_back(is_read(i) ? widened(call_.primals[i], axes, call_.source) : Array(0));
    for (std::size_t i = 1; i < call_.primals.size(); ++i)
      if (active_[i - 1]) arguments.push_back(widened(call_.tangents[i], axes, call_.source));
    const std::vector<Array> tangents =
        stage_cond(site_of(call_), call_.primals[0], branches,
                   branch_names(call_.type(0), branches.size()), std::move(arguments));
    give_results(call_, made_[0].active_out, {}, tangents);
  }

  bool is_read(std::size_t operand) const {
    for (const std::vector<Residual>& residuals : residuals_)
      for (const Residual& r : residuals)
        if (r.kind == Residual::operand && r.at == operand) return true;
    return false;
  }

  JvpCall& call_;
  Flags active_;  // of all operands except the index
  std::vector<LinearizedProgram> made_;
  std::vector<std::vector<Residual>> residuals_;  // of each branch
  std::vector<ShapedArray> places_;
  std::vector<Array> shared_;  // values at the shared positions, from the branch taken
};

}  // namespace

void linearize_cond(JvpCall& call, const CondParams& p) { LinearCond(call, p).run(); }

}  // namespace shmap
