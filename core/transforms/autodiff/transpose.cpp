#include "core/transforms/autodiff/transpose.h"

#include "core/base/inline_vector.h"
#include "core/compiler/lowering/called_program.h"
#include "core/transforms/autodiff/partial_eval.h"

namespace shmap {

namespace {

[[noreturn]] void throw_not_linear(const Eqn& eqn) {
  throw TypeError(std::string(eqn.primitive->name) +
                  " cannot be transposed: " + eqn.primitive->transpose.reason() +
                  ". The function has to be linear in the arguments that are transposed; for a "
                  "derivative of another kind use jvp or jacfwd, or give the function a rule with "
                  "custom_vjp" +
                  at_line(eqn.source));
}

std::vector<bool> without_value(std::span<const Array> args) {
  std::vector<bool> mask;
  for (const Array& x : args) mask.push_back(!x.node());
  return mask;
}

class Backward {
 public:
  Backward(const Jaxpr& whole, std::vector<Array> args)
      : split_(split_equations(whole, without_value(args))), jaxpr_(*split_) {
    const Jaxpr& jaxpr = jaxpr_;
    for (std::size_t i = 0; i < args.size(); ++i)
      if (args[i].node()) known_.emplace(jaxpr.binders[i].get(), std::move(args[i]));
    // Splits the equations: those that depend on a linear binder are transposed, the others are
    // evaluated.
    linear_eqns_.reserve(jaxpr.eqns.size());
    for (const VarRef& v : jaxpr.binders)
      if (!known_.count(v.get())) linear_.emplace(v.get(), true);
    for (const Eqn& eqn : jaxpr.eqns) {
      bool is_linear = false;
      for (const Atom& a : eqn.in) is_linear = is_linear || (!a.is_literal() && is_linear_var(a));
      if (is_linear) {
        linear_eqns_.push_back(&eqn);
        for (const VarRef& v : eqn.out) linear_.emplace(v.get(), true);
      } else {
        evaluate(eqn);
      }
    }
  }

  void seed(std::vector<Array> cotangents) {
    for (std::size_t o = 0; o < jaxpr_.outs.size(); ++o)
      if (cotangents[o].node() && !jaxpr_.outs[o].is_literal())
        add(jaxpr_.outs[o].var(), std::move(cotangents[o]), {});
  }

  void run() {
    for (std::size_t e = linear_eqns_.size(); e-- > 0;) transpose(*linear_eqns_[e]);
  }

  std::vector<Array> results() {
    std::vector<Array> out;
    for (const VarRef& v : jaxpr_.binders) out.push_back(take(v.get()));
    return out;
  }

 private:
  bool is_linear_var(const Atom& a) const { return linear_.count(a.var()) != 0; }

  void evaluate(const Eqn& eqn) {
    std::vector<Array> in, out(eqn.out.size());
    for (const Atom& a : eqn.in) in.push_back(a.is_literal() ? a.literal() : known_.at(a.var()));
    current_trace().process(*eqn.primitive, in, *eqn.params, out, eqn.source);
    for (std::size_t o = 0; o < out.size(); ++o)
      known_.emplace(eqn.out[o].get(), std::move(out[o]));
  }

  void add(const Var* var, Array cotangent, SourceLine source) {
    if (!linear_.count(var)) return;  // a result that does not depend on a linear binder
    Array& sum = cotangents_[var];
    sum = add_tangents(sum, cotangent, source);
  }

  Array take(const Var* var) {
    const auto it = cotangents_.find(var);
    if (it == cotangents_.end()) return Array();
    Array out = std::move(it->second);
    cotangents_.erase(it);
    return out;
  }

  void transpose(const Eqn& eqn) {
    InlineVector<Array, 4> in(eqn.in.size()), out(eqn.in.size());
    InlineVector<Array, 2> cotangents(eqn.out.size());
    InlineVector<ShapedArray, 4> in_types(eqn.in.size());
    InlineVector<ShapedArray, 2> out_types(eqn.out.size());
    bool any = false;
    for (std::size_t o = 0; o < eqn.out.size(); ++o) {
      cotangents[o] = take(eqn.out[o].get());
      out_types[o] = eqn.out[o]->type;
      any = any || cotangents[o].node();
    }
    if (!any) return;
    if (!eqn.primitive->transpose) throw_not_linear(eqn);
    for (std::size_t i = 0; i < eqn.in.size(); ++i) {
      const Atom& a = eqn.in[i];
      in_types[i] = a.type();
      if (a.is_literal()) {
        in[i] = a.literal();
      } else if (!is_linear_var(a)) {
        in[i] = known_.at(a.var());
      }
    }
    TransposeCall call{*eqn.primitive,   *eqn.params,       in.span(),  in_types.span(),
                       out_types.span(), cotangents.span(), out.span(), eqn.source};
    eqn.primitive->transpose.get()(call);
    for (std::size_t i = 0; i < eqn.in.size(); ++i) {
      if (!out[i].node() || !call.is_linear(i)) continue;
      check(eqn, i, node_of(out[i])->type);
      add(eqn.in[i].var(), std::move(out[i]), eqn.source);
    }
  }

  // Another type than the operand's is a fault of the rule.
  void check(const Eqn& eqn, std::size_t i, const ShapedArray& given) const {
    const ShapedArray& wanted = eqn.in[i].type();
    const bool axes = !jaxpr_.checks_variance || given.axes() == wanted.axes();
    if (given.dtype() == wanted.dtype() && given.dims() == wanted.dims() && axes) return;
    throw Error("transpose of " + std::string(eqn.primitive->name) + ": the cotangent of operand " +
                std::to_string(i) + " of type " + to_string(wanted) + " has type " +
                to_string(given) + at_line(eqn.source));
  }

  const SplitScope scope_;
  const JaxprRef split_;
  const Jaxpr& jaxpr_;
  VarMap<Array> known_, cotangents_;
  VarMap<bool> linear_;
  std::vector<const Eqn*> linear_eqns_;
};

}  // namespace

std::vector<Array> backward_pass(const Jaxpr& jaxpr, std::vector<Array> args,
                                 std::vector<Array> cotangents) {
  LibraryScope library;
  Backward pass(jaxpr, std::move(args));
  pass.seed(std::move(cotangents));
  pass.run();
  return pass.results();
}

void transpose_called(TransposeCall& call) {
  std::vector<Array> results =
      backward_pass(*params_as<CalledParams>(call.params).jaxpr, {call.in.begin(), call.in.end()},
                    {call.cotangents.begin(), call.cotangents.end()});
  std::move(results.begin(), results.end(), call.out.begin());
}

namespace {

// Where variance is not tracked, the cotangent of a value that is the same on all devices may
// differ between devices: each device then has a share of a sum.
ShapedArray cotangent_type(const Jaxpr& jaxpr, const ShapedArray& type) {
  if (jaxpr.checks_variance || !jaxpr.env) return type;
  const std::uint64_t all = (std::uint64_t{1} << jaxpr.env->names.size()) - 1;
  return type.with_axes(AxisSet(jaxpr.env, static_cast<std::uint32_t>(all)));
}

}  // namespace

TransposedProgram transpose_program(const Jaxpr& jaxpr, const std::vector<bool>& linear,
                                    const std::vector<bool>& given,
                                    const std::vector<bool>& wanted) {
  JaxprTrace trace("transpose", jaxpr);
  std::vector<Array> args(jaxpr.binders.size()), cotangents(jaxpr.outs.size());
  for (std::size_t i = 0; i < args.size(); ++i)
    if (!linear[i]) args[i] = trace.argument(jaxpr.binders[i]->type);
  for (std::size_t o = 0; o < cotangents.size(); ++o)
    if (given[o]) cotangents[o] = trace.argument(cotangent_type(jaxpr, jaxpr.outs[o].type()));
  TraceScope scope(trace);
  std::vector<Array> results = backward_pass(jaxpr, std::move(args), std::move(cotangents)), outs;
  TransposedProgram program;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool asked = linear[i] && !wanted.empty() && wanted[i];
    program.active_out.push_back(asked || results[i].node());
    if (program.active_out.back()) outs.push_back(or_zeros(results[i], jaxpr.binders[i]->type, {}));
  }
  Traced traced = trace.build(outs, "transpose", {});
  program.jaxpr = std::move(traced.jaxpr);
  program.consts = std::move(traced.consts);
  return program;
}

}  // namespace shmap
