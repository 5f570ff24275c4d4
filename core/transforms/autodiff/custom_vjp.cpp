#include <algorithm>
#include <atomic>

#include "core/compiler/lowering/lower.h"
#include "core/tracing/stage_in_body.h"
#include "core/transforms/autodiff/rule_call.h"

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

struct CustomVjp {
  using Params = CustomVjpParams;
  using Code = ForwardCode;
  static constexpr const char* name = "custom_vjp";
  static Primitive& primitive() { return custom_vjp_call_p; }
  RuleResult differentiate(const ForwardCode& rule, const RuleCall& call) const;
  ForwardCode batched(const ForwardCode& rule, std::vector<bool> batched, std::int64_t size) const {
    return batched_vjp_rule(rule, std::move(batched), arguments, size);
  }
  const TreeNode& arguments;
  SourceLine made;
};

// Calls the forward rule under the trace of the primals; the linear map is staged.
RuleResult CustomVjp::differentiate(const ForwardCode& rule, const RuleCall& call) const {
  if (!call.linear) throw_forward(made);
  RuleResult out;
  CustomVjpLinearParams params;
  std::vector<Array> operands;
  {
    TraceScope scope(call.parent);
    std::vector<Array> leaves(call.primals.begin(), call.primals.end());
    FlatTree result;
    {
      UserCodeScope user;
      params.backward = rule.call(rule.object.get(), leaves, result, call.like);
    }
    const TreeNode& node = result.node.children[0];
    const auto n = static_cast<std::ptrdiff_t>(leaf_count(node));
    out.y.assign(result.leaves.begin(), result.leaves.begin() + n);
    operands.assign(result.leaves.begin() + n, result.leaves.end());
    if (call.wanted) fit_y("custom_vjp", node, out.y, *call.wanted, made);
  }
  for (const Array& x : operands) checked_node(x, "custom_vjp: a residual", made);
  params.num_residuals = static_cast<int>(operands.size());
  params.arguments = arguments;
  params.made = made;
  static std::atomic<std::int64_t> next_id{0};
  params.id = next_id.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < call.primals.size(); ++i) {
    params.in_types.push_back(node_of(call.primals[i])->type);
    params.active.push_back(call.tangents[i].node() != nullptr);
    if (call.tangents[i].node()) operands.push_back(call.tangents[i]);
  }
  bool any = false;
  for (const Array& x : out.y) {
    params.y_types.push_back(checked_node(x, "custom_vjp: the rule's y", made).type);
    any = any || is_differentiable(params.y_types.back().dtype());
  }
  out.y_dot.resize(out.y.size());
  if (!any) return out;
  TraceScope scope(*call.linear);
  std::vector<Array> derivatives = bind_all(custom_vjp_linear_p, operands, params, made);
  for (std::size_t o = 0, next = 0; o < out.y.size(); ++o)
    if (is_differentiable(params.y_types[o].dtype())) out.y_dot[o] = derivatives[next++];
  return out;
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

// Makes the linear map anew whose residuals, tangents and results also vary over the further axes
// of the operands.
void widen_linear(WidenCall& call) {
  AxisSet axes;
  for (std::size_t i = 0; i < call.in.size(); ++i)
    axes = axes | (node_of(call.in[i])->type.axes() - call.eqn.in[i].type().axes());
  CustomVjpLinearParams wide = params_as<CustomVjpLinearParams>(*call.eqn.params);
  for (std::vector<ShapedArray>* types : {&wide.in_types, &wide.y_types})
    for (ShapedArray& t : *types) t = t.with_axes(t.axes() | axes);
  std::vector<Array> results = bind_all(custom_vjp_linear_p, call.in, wide, call.eqn.source);
  std::move(results.begin(), results.end(), call.out.begin());
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
      {"custom_vjp: the second rule's x_bars", "args", kCotangentRemedy, p.made, true}, result,
      p.arguments, p.in_types);
  std::size_t next = n;
  for (std::size_t i = 0; i < bars.size(); ++i)
    if (p.active[i]) call.out[next++] = std::move(bars[i]);
}

}  // namespace

void CustomVjpLinearParams::visit(ParamVisitor& v) const {
  v.value("bwd", id);
  v.value("num_res", static_cast<std::int64_t>(num_residuals));
}

constinit Primitive custom_vjp_call_p = primitive_with_rule<CustomVjp>("custom_vjp_call");

constinit Primitive custom_vjp_linear_p = [] {
  Primitive p;
  p.name = "custom_vjp_linear";
  p.abstract_eval = eval_linear;
  p.result_count = count_linear;
  p.variance = vary_linear;
  p.interpret = interpret_linear;
  p.lower = lower_linear;
  p.programs.widen = widen_linear;
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
  return leaves_with_rule<CustomVjp>(f, rule, like, std::move(arguments), source);
}

}  // namespace detail
}  // namespace shmap
