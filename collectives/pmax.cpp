// pmax and pmin (varying -> invariant).
#include "collectives/batch_rules.h"
#include "collectives/group.h"
#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "collectives/sharding_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/rules.h"

namespace shmap {

namespace {

void eval_extremum(Types in, std::span<ShapedArray> out, const char* what) {
  if (in[0].dtype() == DType::prng_key) {
    throw TypeError(std::string(what) + ": of an operand of type " + to_string(in[0]) +
                    ": keys have no order");
  }
  out[0] = in[0];
}
void eval_pmax(Types in, const Params&, std::span<ShapedArray> out) {
  eval_extremum(in, out, "pmax");
}
void eval_pmin(Types in, const Params&, std::span<ShapedArray> out) {
  eval_extremum(in, out, "pmin");
}

void vary_pmax(Types in, const Params& params, const detail::AxisEnv& env,
               std::span<ShapedArray> out) {
  const auto& p = params_as<AxesParams>(params);
  varying_to_invariant(in, p.axes, p.groups, env, out, "pmax");
}
void vary_pmin(Types in, const Params& params, const detail::AxisEnv& env,
               std::span<ShapedArray> out) {
  const auto& p = params_as<AxesParams>(params);
  varying_to_invariant(in, p.axes, p.groups, env, out, "pmin");
}

void run_pmax(GroupCall& call) { run_all_reduce(call, Reduction::max); }
void run_pmin(GroupCall& call) { run_all_reduce(call, Reduction::min); }

// The tangent is that of the rank with the extreme element; if several ranks have it, the mean of
// their tangents.
void jvp_extremum(JvpCall& call) {
  call.run();
  const auto& p = params_as<AxesParams>(call.params);
  const SourceLine s = call.source;
  const bool cast = p.groups.empty() && current_trace().checks_variance();
  const auto everywhere = [&](const Array& x) {
    return cast ? bind(pbroadcast_p, x, AxesParams(p.axes), s) : x;
  };
  const Array is_it = bind(eq_p, call.primals[0], everywhere(call.out[0]), no_params, s);
  const Array weight = bind(convert_element_type_p, is_it, ConvertParams(call.type(0).dtype()), s);
  const Array ranks = bind(psum_p, weight, call.params, s);
  const Array share = bind(div_p, weight, everywhere(ranks), no_params, s);
  call.tangents_out[0] =
      bind(psum_p, bind(mul_p, call.tangents[0], share, no_params, s), call.params, s);
}

constexpr Primitive extremum(const char* name, AbstractEvalFn eval, VarianceFn variance,
                             GroupFn group) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval;
  p.variance = variance;
  p.group = group;
  p.sharding = Rule<ShardingRuleFn>(split_as_operand);
  p.batching = Rule<BatchFn>(batch_in_place);
  p.traffic = Traffic::reduce;
  p.jvp = Rule<JvpFn>(jvp_extremum);
  p.transpose = Rule<TransposeFn>::none("an extremum is not linear");
  return p;
}

Array extremum_leaf(const Primitive& primitive, const Array& x, const Axes& axes,
                    const PsumOptions& options, SourceLine source) {
  const AxesInScope scope(axes, primitive.name, source);
  group_size(options.axis_index_groups, scope.ranks, primitive.name, axes, source);
  checked_node(x, primitive.name, source);
  if (axes.empty()) return x;
  return bind(primitive, cast_to_varying(x, axes, scope, primitive.name, source),
              AxesParams(axes, options.axis_index_groups), source);
}

}  // namespace

constinit Primitive pmax_p = extremum("pmax", eval_pmax, vary_pmax, run_pmax);
constinit Primitive pmin_p = extremum("pmin", eval_pmin, vary_pmin, run_pmin);

void register_collectives_pmax() {
  register_primitive(pmax_p);
  register_primitive(pmin_p);
}

namespace detail {

Array pmax_leaf(const Array& x, const Axes& axes, const PsumOptions& options, SourceLine source) {
  return extremum_leaf(pmax_p, x, axes, options, source);
}
Array pmin_leaf(const Array& x, const Axes& axes, const PsumOptions& options, SourceLine source) {
  return extremum_leaf(pmin_p, x, axes, options, source);
}

}  // namespace detail
}  // namespace shmap
