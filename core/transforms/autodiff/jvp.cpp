#include "core/transforms/autodiff/jvp.h"

#include "core/base/inline_vector.h"
#include "core/ir/pbroadcast.h"
#include "core/ops/dot.h"
#include "core/tracing/jaxpr_body.h"

namespace shmap {

namespace {

JaxprTrace* as_linear_program(Trace& trace) {
  auto* program = dynamic_cast<JaxprTrace*>(&trace);
  return program && program->below() ? program : nullptr;
}

}  // namespace

JvpTrace::JvpTrace(Trace& parent, JaxprTrace* linear, std::uint64_t tag, const char* name,
                   SourceLine made)
    : Trace(name     ? name
            : linear ? "linearize"
                     : "jvp",
            made),
      parent_(parent),
      linear_(linear),
      linear_parent_(linear ? nullptr : as_linear_program(parent)),
      tag_(tag ? tag : id()),
      attention_(parent) {}

std::pair<Array, Array> JvpTrace::split(const Array& x) const {
  const Node* node = node_of(x);
  if (node && node->kind == NodeKind::dual && node->trace == tag_) {
    const auto& dual = static_cast<const DualNode&>(*node);
    return {dual.primal, dual.tangent};
  }
  return {x, Array()};
}

JvpTrace::Place JvpTrace::place(std::span<const Array> primals,
                                std::span<const Array> tangents) const {
  if (!linear_parent_) return {linear_, parent_};
  for (const Array& x : primals)
    if (linear_parent_->is_staged(x)) return {nullptr, parent_};
  for (const Array& t : tangents)
    if (t.node() && !linear_parent_->is_staged(t)) return {nullptr, parent_};
  return {linear_parent_, *linear_parent_->below()};
}

Array JvpTrace::dual(Array primal, Array tangent, const char* what, SourceLine source) {
  // A tangent that does not depend on the tangents of the inputs is a constant, and the only
  // constant that is linear in them is zero.
  if (!tangent.node() || (linear_ && !linear_->is_staged(tangent))) return primal;
  const ShapedArray& type = checked_node(primal, what, source).type;
  const ShapedArray& given = node_of(tangent)->type;
  if (given.dtype() != type.dtype() || !(given.dims() == type.dims())) {
    throw Error(std::string(what) + ": the tangent of a value of type " + to_string(type) +
                " has type " + to_string(given) + at_line(source));
  }
  if (checks_variance() && !given.axes().contains(type.axes()))
    tangent = below().vary(tangent, type.axes(), source);
  if (!attention_.is_on())
    return Array::first(new DualNode(tag_, std::move(primal), std::move(tangent)));
  Array value = Array::first(new DualNode(tag_, primal, std::move(tangent)));
  attention_.remember_value(primal, value);
  return value;
}

Array JvpTrace::vary(const Array& x, const AxisSet& axes, SourceLine source) {
  auto [primal, tangent] = split(x);
  primal = parent_.vary(primal, axes, source);
  if (tangent.node()) tangent = below().vary(tangent, axes, source);
  if (attention_.is_on() && tangent.node())
    attention_.remember_operation(pbroadcast_p, 1, primal, [](std::size_t) { return true; });
  return dual(std::move(primal), std::move(tangent), "pbroadcast", source);
}

void JvpTrace::process(const Primitive& primitive, std::span<Array> in, const Params& params,
                       std::span<Array> out, SourceLine source) {
  InlineVector<Array, 4> primals(in.size()), tangents(in.size());
  bool active = false;
  AxisSet axes;
  for (std::size_t i = 0; i < in.size(); ++i) {
    axes = axes | checked_node(in[i], primitive.name, source).type.axes();
    std::tie(primals[i], tangents[i]) = split(in[i]);
    active = active || tangents[i].node();
    in[i] = Array();  // releases this trace's reference, so that a donated operand has a sole owner
  }
  if (!active) {
    TraceScope scope(parent_);
    return parent_.process(primitive, primals.span(), params, out, source);
  }
  const auto has_tangent = [&](std::size_t i) { return tangents[i].node() != nullptr; };
  if (attention_.is_on() && &primitive == &dot_general_p) {
    const std::uint64_t both = (has_tangent(0) ? 1u : 0u) | (has_tangent(1) ? 2u : 0u);
    if (auto call = attention_.find(primals.span(), params, both, source))
      return process(attention_p, call->in, *call->params, out, source);
  }
  // The JVP rules of the library insert casts themselves. Where the user has to write casts, a
  // missing cast must therefore be refused before the rule is called.
  if (!axes.empty() && checks_variance() && !casts() && !primitive.variance && !primitive.group)
    require_equal_variance(primitive.name, primals.span(), source);
  if (!primitive.jvp) {
    throw TypeError(std::string(primitive.name) +
                    " cannot be differentiated: " + primitive.jvp.reason() +
                    ". Keep it from the arguments of the derivative, or give the function around "
                    "it a rule with custom_jvp or custom_vjp" +
                    at_line(source));
  }
  if (!axes.empty() && checks_variance() && !primitive.variance && !primitive.group) {
    // A tangent is cast before the operation, once, since the operation may make it larger.
    for (Array& t : tangents)
      if (t.node() && !node_of(t)->type.axes().contains(axes)) t = below().vary(t, axes, source);
  }
  InlineVector<Array, 2> results(out.size()), derivatives(out.size());
  const Place at = place(primals.span(), tangents.span());
  JvpCall call{primitive,          params, primals.span(), tangents.span(), results.span(),
               derivatives.span(), source, at.linear,      at.parent};
  {
    TraceScope scope(below());
    LibraryScope library;
    primitive.jvp.get()(call);
  }
  if (attention_.is_on() && out.size() == 1)
    attention_.remember_operation(primitive, in.size(), results[0], has_tangent);
  for (std::size_t o = 0; o < out.size(); ++o)
    out[o] = dual(std::move(results[o]), std::move(derivatives[o]), primitive.name, source);
}

Duals jvp_of(detail::BodyRef f, std::vector<Array> primals, std::span<const Array> tangents,
             detail::FlatTree& result, SourceLine source) {
  ensure_started();
  JvpTrace trace(current_trace(), nullptr, 0, "jvp", source);
  std::vector<Array> args;
  for (std::size_t i = 0; i < primals.size(); ++i)
    args.push_back(trace.dual(std::move(primals[i]), tangents[i], "jvp: an argument", source));
  {
    TraceScope scope(trace);
    f(args, result);
    args.clear();
  }
  Duals out;
  for (Array& leaf : result.leaves) {
    checked_node(leaf, "jvp: a result", source);
    auto [primal, tangent] = trace.split(leaf);
    out.primals.push_back(std::move(primal));
    out.tangents.push_back(std::move(tangent));
  }
  result.leaves.clear();
  return out;
}

JvpProgram jvp_program(const Jaxpr& jaxpr, const std::vector<bool>& active,
                       const std::vector<bool>& wanted) {
  JaxprTrace trace("jvp", jaxpr);
  std::vector<Array> primals, tangents(jaxpr.binders.size());
  for (const VarRef& v : jaxpr.binders) primals.push_back(trace.argument(v->type));
  for (std::size_t i = 0; i < jaxpr.binders.size(); ++i)
    if (active[i]) tangents[i] = trace.argument(jaxpr.binders[i]->type);
  TraceScope scope(trace);
  JaxprBody body(jaxpr, {});
  detail::FlatTree result;
  Duals duals = jvp_of(detail::BodyRef(body), std::move(primals), tangents, result, {});
  JvpProgram program;
  std::vector<Array> outs = std::move(duals.primals);
  for (std::size_t o = 0; o < duals.tangents.size(); ++o) {
    const bool is_active = duals.tangents[o].node() || (!wanted.empty() && wanted[o]);
    program.active_out.push_back(is_active);
    if (is_active) outs.push_back(or_zeros(duals.tangents[o], jaxpr.outs[o].type(), {}));
  }
  Traced traced = trace.build(outs, "jvp", {});
  program.jaxpr = std::move(traced.jaxpr);
  program.consts = std::move(traced.consts);
  return program;
}

}  // namespace shmap
