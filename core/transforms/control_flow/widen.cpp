// Widening: a program traced again for operands that vary over more mesh axes.
#include "core/ir/nesting.h"
#include "core/ir/types_of.h"
#include "core/transforms/autodiff/custom_rules.h"
#include "core/transforms/control_flow/control_flow.h"
#include "core/transforms/tracing/trace_function.h"

namespace shmap {

namespace {

class Widener {
 public:
  explicit Widener(const Jaxpr& jaxpr) : jaxpr_(jaxpr) {}

  std::vector<Array> run(std::vector<Array>& args) {
    for (std::size_t i = 0; i < args.size(); ++i)
      values_.emplace(jaxpr_.binders[i].get(), std::move(args[i]));
    for (const Eqn& e : jaxpr_.eqns) {
      std::vector<Array> in;
      for (const Atom& a : e.in) in.push_back(read(a));
      std::vector<Array> out = eqn(e, std::move(in));
      for (std::size_t o = 0; o < out.size(); ++o)
        values_.emplace(e.out[o].get(), std::move(out[o]));
    }
    std::vector<Array> outs;
    for (const Atom& a : jaxpr_.outs) outs.push_back(read(a));
    return outs;
  }

 private:
  Array read(const Atom& a) const { return a.is_literal() ? a.literal() : values_.at(a.var()); }

  // A program inside of an equation, traced again as a body for operands of other types.
  struct Inner {
    const Jaxpr* jaxpr;
    void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
      std::vector<Array> args = std::move(leaves);
      leaves.clear();
      result.leaves = Widener(*jaxpr).run(args);
      result.node.kind = detail::TreeNode::list;
      result.node.children.resize(result.leaves.size());
    }
  };

  std::vector<Array> eqn(const Eqn& e, std::vector<Array> in) const {
    bool changed = false;
    for (std::size_t i = 0; i < in.size(); ++i)
      changed = changed || !(node_of(in[i])->type.axes() == e.in[i].type().axes());
    if (changed && e.primitive->group && e.primitive->view) {
      // A cast of a value that varies over the axes already is dropped.
      const AxisSet missing = e.out[0]->type.axes() - node_of(in[0])->type.axes();
      if (missing.empty()) return {in[0]};
      return {cast_to_varying(in[0], missing, e.source)};
    }
    if (changed && e.primitive->interpret) return nested(e, std::move(in));
    if (changed && e.primitive == &custom_vjp_linear_p) {
      AxisSet axes;
      for (std::size_t i = 0; i < in.size(); ++i)
        axes = axes | (node_of(in[i])->type.axes() - e.in[i].type().axes());
      const auto wide = varying_over(params_as<CustomVjpLinearParams>(*e.params), axes);
      return bind_all(*e.primitive, in, *wide, e.source);
    }
    return bind_all(*e.primitive, in, *e.params, e.source);
  }

  std::vector<Array> nested(const Eqn& e, std::vector<Array> in) const {
    FlowSite site{e.primitive->name, nullptr, 0, e.source};
    const auto part = [&](std::size_t from, std::size_t count) {
      return std::vector<Array>(in.begin() + static_cast<std::ptrdiff_t>(from),
                                in.begin() + static_cast<std::ptrdiff_t>(from + count));
    };
    // A body whose first arguments are these constants.
    const auto closed = [](const Inner& inner, const std::vector<Array>& consts) {
      return [&inner, &consts](std::vector<Array>& leaves, detail::FlatTree& result) {
        leaves.insert(leaves.begin(), consts.begin(), consts.end());
        inner(leaves, result);
      };
    };
    if (e.primitive == &scan_p) {
      const auto& p = params_as<ScanLoopParams>(*e.params);
      const auto n_consts = static_cast<std::size_t>(p.num_consts);
      const auto n_carry = static_cast<std::size_t>(p.num_carry);
      const std::vector<Array> consts = part(0, n_consts);
      const Inner inner{p.jaxpr.get()};
      auto body = closed(inner, consts);
      return stage_scan(site, BodyRef(body), part(n_consts, n_carry),
                        part(n_consts + n_carry, in.size() - n_consts - n_carry), p.length,
                        p.reverse);
    }
    if (e.primitive == &while_p) {
      const auto& p = params_as<WhileParams>(*e.params);
      const auto n_test = static_cast<std::size_t>(p.cond_nconsts);
      const auto n_body = static_cast<std::size_t>(p.body_nconsts);
      const std::vector<Array> test_consts = part(0, n_test), body_consts = part(n_test, n_body);
      const Inner test{p.cond_jaxpr.get()}, body{p.body_jaxpr.get()};
      auto closed_test = closed(test, test_consts), closed_body = closed(body, body_consts);
      return stage_while(site, BodyRef(closed_test), BodyRef(closed_body),
                         part(n_test + n_body, in.size() - n_test - n_body));
    }
    if (e.primitive == &cond_p) {
      const auto& p = params_as<CondParams>(*e.params);
      std::vector<Inner> inner;
      for (const JaxprRef& b : p.branches) inner.push_back({b.get()});
      std::vector<BodyRef> branches;
      for (Inner& b : inner) branches.emplace_back(b);
      return stage_cond(site, in[0], branches, branch_names(node_of(in[0])->type, inner.size()),
                        part(1, in.size() - 1));
    }
    // A called program (custom_jvp, checkpoint) keeps its rules for derivatives.
    const std::vector<const Jaxpr*> called = inner_jaxprs(*e.params);
    if (called.size() != 1 || called[0]->binders.size() != in.size() || !e.primitive->with_programs)
      return bind_all(*e.primitive, in, *e.params, e.source);
    Inner inner{called[0]};
    detail::FlatTree result;
    Traced traced = trace_function(e.primitive->name, types_of(in), BodyRef(inner), result,
                                   inherited_options(), e.source);
    // The new program has no constants: its values come from its arguments and from literals.
    const std::vector<JaxprRef> programs{std::move(traced.jaxpr)};
    return bind_all(*e.primitive, in, *e.primitive->with_programs(*e.params, programs), e.source);
  }

  const Jaxpr& jaxpr_;
  VarMap<Array> values_;
};

}  // namespace

std::vector<Array> stage_in_body(const Jaxpr& jaxpr, std::vector<Array> args) {
  return Widener(jaxpr).run(args);
}

JaxprRef widen(const Jaxpr& jaxpr, const AxisSet& axes, std::span<const ShapedArray> results) {
  bool wide = true;
  for (const VarRef& v : jaxpr.binders) wide = wide && v->type.axes().contains(axes);
  for (std::size_t o = 0; o < results.size(); ++o)
    wide = wide && !jaxpr.outs[o].is_literal() && jaxpr.outs[o].type() == results[o] &&
           jaxpr.outs[o].type().weak() == results[o].weak();
  if (wide) return JaxprRef(&jaxpr);
  const PassVisit visit("widen", jaxpr);
  JaxprTrace trace("widen", jaxpr);
  std::vector<Array> args;
  for (const VarRef& v : jaxpr.binders)
    args.push_back(trace.argument(v->type.with_axes(v->type.axes() | axes)));
  TraceScope scope(trace);
  std::vector<Array> outs = Widener(jaxpr).run(args);
  for (std::size_t o = 0; o < outs.size(); ++o) outs[o] = fit(std::move(outs[o]), results[o], {});
  return trace.build(outs, "widen", {}).jaxpr;
}

}  // namespace shmap
