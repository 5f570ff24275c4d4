#include "core/ops/rules.h"
#include "core/transforms/autodiff/custom_rules.h"
#include "core/transforms/autodiff/derivative_args.h"
#include "core/transforms/autodiff/jvp.h"
#include "core/transforms/vmap/batch.h"
#include "core/transforms/vmap/custom_batch.h"

namespace shmap {

using detail::BodyRef;
using detail::FlatTree;
using detail::RuleCode;

namespace {

struct RuleResult {
  std::vector<Array> y, y_dot;  // a tangent that is empty: zero
};

// The user's rule at primals along tangents (empty: zero), under the current trace; its result is
// checked. wanted: the types of the function's result, null where they are not known.
RuleResult call_rule(const RuleCode& rule, void* like, std::span<const Array> primals,
                     std::span<const Array> tangents, const Types* wanted, const JaxprTrace* linear,
                     SourceLine made) {
  std::vector<Array> leaves(primals.begin(), primals.end());
  for (std::size_t i = 0; i < primals.size(); ++i)
    leaves.push_back(or_zeros(tangents[i], node_of(primals[i])->type, made));
  FlatTree result;
  {
    UserCodeScope user;
    rule.call(rule.object.get(), leaves, result, like);
  }
  const detail::TreeNode &y_node = result.node.children[0], &dot_node = result.node.children[1];
  const auto n = static_cast<std::ptrdiff_t>(leaf_count(y_node));
  RuleResult out;
  out.y.assign(result.leaves.begin(), result.leaves.begin() + n);
  if (wanted) fit_y("custom_jvp", y_node, out.y, *wanted, made);
  std::vector<ShapedArray> types;
  for (const Array& x : out.y) {
    types.push_back(checked_node(x, "custom_jvp: the rule's y", made).type);
    if (linear && linear->is_staged(x)) {
      throw TypeError("custom_jvp: the rule's y of type " + to_string(types.back()) +
                      " is computed from the tangents: compute y from the primals alone" +
                      at_line(made));
    }
  }
  FlatTree given;
  given.node = dot_node;
  given.leaves.assign(result.leaves.begin() + n, result.leaves.end());
  out.y_dot = fit_derivatives({"custom_jvp: the rule's y_dot", "its y",
                               "sum it over the devices with psum(x, axes)", made, true},
                              given, y_node, types);
  return out;
}

void jvp_custom_jvp(JvpCall& call) {
  const auto& p = params_as<CustomJvpParams>(call.params);
  const auto n = static_cast<std::size_t>(p.num_consts);
  const std::vector<ShapedArray> types =
      called_results("custom_jvp", call, *p.jaxpr, p.num_consts, p.made);
  const Types wanted = types;
  ClosedFunction closed("custom_jvp", p.made);
  RuleResult made = call_rule(p.rule, nullptr, call.primals.subspan(n), call.tangents.subspan(n),
                              &wanted, call.linear, p.made);
  std::move(made.y.begin(), made.y.end(), call.out.begin());
  std::move(made.y_dot.begin(), made.y_dot.end(), call.tangents_out.begin());
}

void batch_custom_jvp(BatchCall& call) {
  const auto& p = params_as<CustomJvpParams>(call.params);
  CustomJvpParams params = p;
  BatchedCall batched = batch_called(call, p.jaxpr, static_cast<std::size_t>(p.num_consts));
  params.jaxpr = std::move(batched.jaxpr);
  params.num_consts = batched.num_consts;
  params.rule = batched_jvp_rule(p.rule, batched.batched, call.size);
  give(call, batched.operands, params, 0);
}

std::vector<Array> call_custom_jvp(BodyRef f, const RuleCode& rule, void* like,
                                   std::vector<Array> leaves, SourceLine made) {
  const RuleTrace target = rule_trace(leaves);
  switch (target.kind) {
    case RuleTraceKind::here: {
      FlatTree result;
      f(leaves, result);
      return std::move(result.leaves);
    }
    case RuleTraceKind::below: {
      TraceScope scope(*target.trace);
      return call_custom_jvp(f, rule, like, std::move(leaves), made);
    }
    case RuleTraceKind::jvp: {
      auto& jvp = static_cast<JvpTrace&>(*target.trace);
      std::vector<Array> primals, tangents;
      for (const Array& x : leaves) {
        auto [primal, tangent] = jvp.split(x);
        primals.push_back(std::move(primal));
        tangents.push_back(std::move(tangent));
      }
      RuleResult out;
      {
        TraceScope scope(jvp.linear() ? static_cast<Trace&>(*jvp.linear()) : jvp.parent());
        out = call_rule(rule, like, primals, tangents, nullptr, jvp.linear(), made);
      }
      for (std::size_t o = 0; o < out.y.size(); ++o)
        out.y[o] = jvp.dual(std::move(out.y[o]), std::move(out.y_dot[o]), "custom_jvp", made);
      return std::move(out.y);
    }
    case RuleTraceKind::batch: {
      auto& batch = static_cast<BatchTrace&>(*target.trace);
      BatchedLeaves batched = split_batched(batch, std::move(leaves));
      BatchedBody body(f, batched.batched, batch.size(), batch.tag());
      std::vector<Array> out;
      {
        TraceScope scope(batch.parent());
        out = call_custom_jvp(BodyRef(body), batched_jvp_rule(rule, batched.batched, batch.size()),
                              like, std::move(batched.leaves), made);
      }
      for (Array& x : out) x = batch.wrap(std::move(x), 0);
      return out;
    }
    case RuleTraceKind::staged:
      break;
  }
  Traced traced = trace_called("custom_jvp", f, leaves, made);
  CustomJvpParams params;
  params.jaxpr = std::move(traced.jaxpr);
  params.rule = rule;
  params.num_consts = static_cast<int>(traced.consts.size());
  params.made = made;
  std::vector<Array> operands = std::move(traced.consts);
  for (Array& x : leaves) operands.push_back(std::move(x));
  return bind_all(custom_jvp_call_p, operands, params, made);
}

}  // namespace

void CustomJvpParams::visit(ParamVisitor& v) const {
  v.value("call_jaxpr", *jaxpr);
  v.value("num_consts", static_cast<std::int64_t>(num_consts));
}

constinit Primitive custom_jvp_call_p = [] {
  Primitive p = called_primitive("custom_jvp_call");
  p.with_programs = with_called_program<CustomJvpParams>;
  p.jvp = Rule<JvpFn>(jvp_custom_jvp);
  p.transpose = Rule<TransposeFn>(transpose_called);
  p.batching = Rule<BatchFn>(batch_custom_jvp);
  return p;
}();

void register_custom_jvp() { register_primitive(custom_jvp_call_p); }

namespace detail {

std::vector<Array> custom_jvp_leaves(BodyRef f, RuleCode rule, void* like, FlatTree arguments,
                                     SourceLine source) {
  ensure_started();
  argument_types("custom_jvp", arguments, source);
  ClosedFunction closed("custom_jvp", source);
  return call_custom_jvp(f, rule, like, std::move(arguments.leaves), source);
}

}  // namespace detail
}  // namespace shmap
