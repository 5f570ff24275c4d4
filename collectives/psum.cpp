// psum (varying -> invariant) beside its transpose pbroadcast (invariant -> varying), and psum's
// mean.
#include <utility>

#include "collectives/batch_rules.h"
#include "collectives/group.h"
#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "collectives/sharding_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"

namespace shmap {

// ---- psum
namespace {

void eval_psum(Types in, const Params&, std::span<ShapedArray> out) {
  const DType t = in[0].dtype();
  if (!is_integer(t) && !is_floating(t)) {
    throw TypeError(std::string("psum: of an operand of type ") + to_string(in[0]) +
                    ": numbers are wanted; convert it with astype");
  }
  out[0] = in[0];
}

void vary_psum(Types in, const Params& params, const detail::AxisEnv& env,
               std::span<ShapedArray> out) {
  const auto& p = params_as<AxesParams>(params);
  varying_to_invariant(in, p.axes, p.groups, env, out, "psum");
}

void run_psum(GroupCall& call) { run_all_reduce(call, Reduction::sum); }

// Each device's operand counts once in the sum, so it gets the sum's cotangent. Sums of groups
// differ between groups, and without variance tracking a cotangent may differ too: then the
// cotangents of a group are summed, as pmap does.
void transpose_psum(TransposeCall& call) {
  const auto& p = params_as<AxesParams>(call.params);
  const bool invariant = p.groups.empty() && current_trace().checks_variance();
  call.out[0] =
      bind(invariant ? pbroadcast_p : psum_p, call.cotangents[0], call.params, call.source);
}

// ---- pbroadcast
void eval_pbroadcast(Types in, const Params&, std::span<ShapedArray> out) { out[0] = in[0]; }

void vary_pbroadcast(Types in, const Params& params, const detail::AxisEnv& env,
                     std::span<ShapedArray> out) {
  invariant_to_varying(in, params_as<AxesParams>(params).axes, env, out, "pbroadcast");
}

// Only the type changes: the table stays.
void run_pbroadcast(GroupCall& call) {
  share_blocks(std::as_const(*call.in[0]).blocks(), call.out[0]->blocks());
}

// Without variance tracking the transpose is the identity: mapped functions sum the cotangents.
void transpose_pbroadcast(TransposeCall& call) {
  call.out[0] = current_trace().checks_variance()
                    ? bind(psum_p, call.cotangents[0], call.params, call.source)
                    : call.cotangents[0];
}

}  // namespace

constinit Primitive psum_p = [] {
  Primitive p;
  p.name = "psum";
  p.abstract_eval = eval_psum;
  p.variance = vary_psum;
  p.group = run_psum;
  p.sharding = Rule<ShardingRuleFn>(split_as_operand);
  p.batching = Rule<BatchFn>(batch_in_place);
  p.traffic = Traffic::reduce;
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_psum);
  return p;
}();

// core/ir defines the record, because casts are made there; core/extend gives it a syntax.
static void fill_in_pbroadcast(Primitive& p) {
  p.name = "pbroadcast";
  p.abstract_eval = eval_pbroadcast;
  p.variance = vary_pbroadcast;
  p.group = run_pbroadcast;
  p.sharding = Rule<ShardingRuleFn>(split_as_operand);
  p.host_scalar = [](const Params&, const detail::MeshImpl&, std::uint32_t,
                     std::span<const std::uint64_t> in) { return in[0]; };
  p.view = [](const ShapedArray&, const Params&, const ShapedArray&) { return std::int64_t{0}; };
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_pbroadcast);
  p.batching = Rule<BatchFn>(batch_in_place);
}

void register_collectives_psum() {
  register_primitive(psum_p);
  fill_in_pbroadcast(pbroadcast_p);
  register_primitive(pbroadcast_p);
}

// ---- user functions
namespace detail {

namespace {
// Converts bools to i32, in which they are counted.
Array numbers(const Array& x, const char* what, SourceLine source) {
  const ShapedArray& type = checked_node(x, what, source).type;
  return type.dtype() == DType::bool_ ? convert(x, i32, source) : x;
}
}  // namespace

Array psum_leaf(const Array& x, const Axes& axes, const PsumOptions& options, SourceLine source) {
  const AxesInScope scope(axes, "psum", source);
  group_size(options.axis_index_groups, scope.ranks, "psum", axes, source);
  Array counted = numbers(x, "psum", source);
  if (axes.empty()) return counted;
  return bind(psum_p, cast_to_varying(counted, axes, scope, "psum", source),
              AxesParams(axes, options.axis_index_groups), source);
}

Array pmean_leaf(const Array& x, const Axes& axes, const PsumOptions& options, SourceLine source) {
  const AxesInScope scope(axes, "pmean", source);
  checked_node(x, "pmean", source);
  const int n = group_size(options.axis_index_groups, scope.ranks, "pmean", axes, source);
  Operand sum(psum_leaf(x, axes, options, source), source.file, source.line);
  Operand ranks(n, source.file, source.line);
  promote_inexact(sum, ranks, "pmean");
  return bind(div_p, std::move(sum.value), std::move(ranks.value), no_params, source);
}

Array pbroadcast_leaf(const Array& x, const Axes& axes, const char* what, SourceLine source) {
  const AxesInScope scope(axes, what, source);
  const ShapedArray& type = checked_node(x, what, source).type;
  const std::uint32_t varies = scope.mask & type.axes().mask_in(*scope.env);
  if (varies != 0 && !current_trace().checks_variance()) {
    std::vector<std::string> others;
    for (const std::string& name : axes)
      if (!(varies >> scope.env->find(name) & 1u)) others.push_back(name);
    return others.empty() ? x : bind(pbroadcast_p, x, AxesParams(Axes(others)), source);
  }
  return axes.empty() ? x : bind(pbroadcast_p, x, AxesParams(axes), source);
}

int rank_count(const Axes& axes, const Groups& groups, const char* what, SourceLine source) {
  const AxesInScope scope(axes, what, source);
  return group_size(groups, scope.ranks, what, axes, source);
}

}  // namespace detail
}  // namespace shmap
