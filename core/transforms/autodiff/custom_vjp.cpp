#include <algorithm>
#include <atomic>

#include "core/ops/rules.h"
#include "core/transforms/autodiff/custom_rules.h"
#include "core/transforms/autodiff/derivative_args.h"
#include "core/transforms/autodiff/jvp.h"
#include "core/transforms/lowering/lower.h"
#include "core/transforms/vmap/custom_batch.h"

namespace shmap {

using detail::BodyRef;
using detail::FlatTree;
using detail::ForwardCode;
using detail::RuleCode;
using detail::TreeNode;

namespace {

constexpr const char* kReverseOnly =
    "the function has a rule for reverse mode alone, and forward mode (jvp, jacfwd, the map that "
    "linearize gives) was asked of it: use vjp, grad or jacrev, or give it a rule with custom_jvp";

[[noreturn]] void throw_forward(SourceLine made) {
  throw TypeError(std::string("custom_vjp: ") + kReverseOnly + at_line(made));
}

struct VjpSite {
  const TreeNode& arguments;
  SourceLine made;
};

struct Forward {
  std::vector<Array> y, y_dot;
};

// Calls the forward rule at primals, under the trace of their values; `linear` stages the linear
// map.
Forward call_forward(const ForwardCode& rule, void* like, const VjpSite& site,
                     std::span<const Array> primals, std::span<const Array> tangents,
                     const Types* wanted, JaxprTrace* linear, Trace& parent) {
  if (!linear) throw_forward(site.made);
  Forward out;
  CustomVjpLinearParams params;
  std::vector<Array> operands;
  {
    TraceScope scope(parent);
    std::vector<Array> leaves(primals.begin(), primals.end());
    FlatTree result;
    {
      UserCodeScope user;
      params.backward = rule.call(rule.object.get(), leaves, result, like);
    }
    const TreeNode& node = result.node.children[0];
    const auto n = static_cast<std::ptrdiff_t>(leaf_count(node));
    out.y.assign(result.leaves.begin(), result.leaves.begin() + n);
    operands.assign(result.leaves.begin() + n, result.leaves.end());
    if (wanted) fit_y("custom_vjp", node, out.y, *wanted, site.made);
  }
  for (const Array& x : operands) checked_node(x, "custom_vjp: a residual", site.made);
  params.num_residuals = static_cast<int>(operands.size());
  params.arguments = site.arguments;
  params.made = site.made;
  static std::atomic<std::int64_t> next_id{0};
  params.id = next_id.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < primals.size(); ++i) {
    params.in_types.push_back(node_of(primals[i])->type);
    params.active.push_back(tangents[i].node() != nullptr);
    if (tangents[i].node()) operands.push_back(tangents[i]);
  }
  bool any = false;
  for (const Array& x : out.y) {
    params.y_types.push_back(checked_node(x, "custom_vjp: the rule's y", site.made).type);
    any = any || is_differentiable(params.y_types.back().dtype());
  }
  out.y_dot.resize(out.y.size());
  if (!any) return out;
  TraceScope scope(*linear);
  std::vector<Array> derivatives = bind_all(custom_vjp_linear_p, operands, params, site.made);
  for (std::size_t o = 0, next = 0; o < out.y.size(); ++o)
    if (is_differentiable(params.y_types[o].dtype())) out.y_dot[o] = derivatives[next++];
  return out;
}

// ---- custom_vjp_call

void jvp_custom_vjp(JvpCall& call) {
  const auto& p = params_as<CustomVjpParams>(call.params);
  const auto n = static_cast<std::size_t>(p.num_consts);
  const std::vector<ShapedArray> types =
      called_results("custom_vjp", call, *p.jaxpr, p.num_consts, p.made);
  const Types wanted = types;
  ClosedFunction closed("custom_vjp", p.made);
  Forward made = call_forward(p.rule, nullptr, {p.arguments, p.made}, call.primals.subspan(n),
                              call.tangents.subspan(n), &wanted, call.linear, call.parent);
  std::move(made.y.begin(), made.y.end(), call.out.begin());
  std::move(made.y_dot.begin(), made.y_dot.end(), call.tangents_out.begin());
}

void batch_custom_vjp(BatchCall& call) {
  const auto& p = params_as<CustomVjpParams>(call.params);
  CustomVjpParams params = p;
  BatchedCall batched = batch_called(call, p.jaxpr, static_cast<std::size_t>(p.num_consts));
  params.jaxpr = std::move(batched.jaxpr);
  params.num_consts = batched.num_consts;
  params.rule = batched_vjp_rule(p.rule, batched.batched, p.arguments, call.size);
  give(call, batched.operands, params, 0);
}

// ---- custom_vjp_linear

int count_linear(Types, const Params& params) {
  int n = 0;
  for (const ShapedArray& t : params_as<CustomVjpLinearParams>(params).y_types)
    n += is_differentiable(t.dtype());
  return n;
}

void eval_linear(Types, const Params& params, std::span<ShapedArray> out) {
  std::size_t o = 0;
  for (const ShapedArray& t : params_as<CustomVjpLinearParams>(params).y_types)
    if (is_differentiable(t.dtype())) out[o++] = t;
}

void vary_linear(Types, const Params&, const detail::AxisEnv&, std::span<ShapedArray>) {}

void interpret_linear(std::span<Array>, const Params& params, std::span<Array>, SourceLine) {
  throw_forward(params_as<CustomVjpLinearParams>(params).made);
}

void lower_linear(LowerCall& call) {
  throw_forward(params_as<CustomVjpLinearParams>(call.params).made);
}

void transpose_linear(TransposeCall& call) {
  const auto& p = params_as<CustomVjpLinearParams>(call.params);
  const auto n = static_cast<std::size_t>(p.num_residuals);
  std::vector<Array> leaves(call.in.begin(), call.in.begin() + static_cast<std::ptrdiff_t>(n));
  std::size_t o = 0;
  for (const ShapedArray& t : p.y_types) {
    leaves.push_back(is_differentiable(t.dtype()) ? or_zeros(call.cotangents[o++], t, p.made)
                                                  : zeros_of(t, p.made));
  }
  FlatTree result;
  {
    UserCodeScope user;
    ClosedFunction closed("custom_vjp", p.made);
    p.backward.call(p.backward.object.get(), leaves, result, nullptr);
  }
  std::vector<Array> bars = fit_derivatives(
      {"custom_vjp: what its second rule returns", "args", kCotangentRemedy, p.made, true}, result,
      p.arguments, p.in_types);
  std::size_t next = n;
  for (std::size_t i = 0; i < bars.size(); ++i)
    if (p.active[i]) call.out[next++] = std::move(bars[i]);
}

// ---- calls

std::vector<Array> call_custom_vjp(BodyRef f, const ForwardCode& rule, void* like,
                                   const VjpSite& site, std::vector<Array> leaves) {
  const RuleTrace target = rule_trace(leaves);
  switch (target.kind) {
    case RuleTraceKind::here: {
      FlatTree result;
      f(leaves, result);
      return std::move(result.leaves);
    }
    case RuleTraceKind::below: {
      TraceScope scope(*target.trace);
      return call_custom_vjp(f, rule, like, site, std::move(leaves));
    }
    case RuleTraceKind::jvp: {
      auto& jvp = static_cast<JvpTrace&>(*target.trace);
      std::vector<Array> primals, tangents;
      for (const Array& x : leaves) {
        auto [primal, tangent] = jvp.split(x);
        primals.push_back(std::move(primal));
        tangents.push_back(std::move(tangent));
      }
      Forward out =
          call_forward(rule, like, site, primals, tangents, nullptr, jvp.linear(), jvp.parent());
      for (std::size_t o = 0; o < out.y.size(); ++o)
        out.y[o] = jvp.dual(std::move(out.y[o]), std::move(out.y_dot[o]), "custom_vjp", site.made);
      return std::move(out.y);
    }
    case RuleTraceKind::batch: {
      auto& batch = static_cast<BatchTrace&>(*target.trace);
      BatchedLeaves batched = split_batched(batch, std::move(leaves));
      BatchedBody body(f, batched.batched, batch.size(), batch.tag());
      std::vector<Array> out;
      {
        TraceScope scope(batch.parent());
        out = call_custom_vjp(BodyRef(body),
                              batched_vjp_rule(rule, batched.batched, site.arguments, batch.size()),
                              like, site, std::move(batched.leaves));
      }
      for (Array& x : out) x = batch.wrap(std::move(x), 0);
      return out;
    }
    case RuleTraceKind::staged:
      break;
  }
  Traced traced = trace_called("custom_vjp", f, leaves, site.made);
  CustomVjpParams params;
  params.jaxpr = std::move(traced.jaxpr);
  params.rule = rule;
  params.num_consts = static_cast<int>(traced.consts.size());
  params.arguments = site.arguments;
  params.made = site.made;
  std::vector<Array> operands = std::move(traced.consts);
  for (Array& x : leaves) operands.push_back(std::move(x));
  return bind_all(custom_vjp_call_p, operands, params, site.made);
}

}  // namespace

void CustomVjpParams::visit(ParamVisitor& v) const {
  v.value("call_jaxpr", *jaxpr);
  v.value("num_consts", static_cast<std::int64_t>(num_consts));
}

void CustomVjpLinearParams::visit(ParamVisitor& v) const {
  v.value("bwd", id);
  v.value("num_res", static_cast<std::int64_t>(num_residuals));
}

std::shared_ptr<const Params> varying_over(const CustomVjpLinearParams& p, const AxisSet& axes) {
  auto wide = std::make_shared<CustomVjpLinearParams>(p);
  for (std::vector<ShapedArray>* types : {&wide->in_types, &wide->y_types})
    for (ShapedArray& t : *types) t = t.with_axes(t.axes() | axes);
  return wide;
}

constinit Primitive custom_vjp_call_p = [] {
  Primitive p = called_primitive("custom_vjp_call");
  p.with_programs = with_called_program<CustomVjpParams>;
  p.jvp = Rule<JvpFn>(jvp_custom_vjp);
  p.transpose = Rule<TransposeFn>(transpose_called);
  p.batching = Rule<BatchFn>(batch_custom_vjp);
  return p;
}();

constinit Primitive custom_vjp_linear_p = [] {
  Primitive p;
  p.name = "custom_vjp_linear";
  p.abstract_eval = eval_linear;
  p.result_count = count_linear;
  p.variance = vary_linear;
  p.interpret = interpret_linear;
  p.lower = lower_linear;
  p.jvp = Rule<JvpFn>::none(kReverseOnly);
  p.transpose = Rule<TransposeFn>(transpose_linear);
  p.batching = Rule<BatchFn>::none(kReverseOnly);
  return p;
}();

void register_custom_vjp() {
  register_primitive(custom_vjp_call_p);
  register_primitive(custom_vjp_linear_p);
}

namespace detail {

std::vector<Array> custom_vjp_leaves(BodyRef f, ForwardCode rule, void* like, FlatTree arguments,
                                     SourceLine source) {
  ensure_started();
  argument_types("custom_vjp", arguments, source);
  ClosedFunction closed("custom_vjp", source);
  return call_custom_vjp(f, rule, like, {arguments.node, source}, std::move(arguments.leaves));
}

}  // namespace detail
}  // namespace shmap
