// all_gather and psum_scatter (varying -> varying), each the other's transpose.
#include "collectives/batch_rules.h"
#include "collectives/group.h"
#include "collectives/pieces.h"
#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "collectives/sharding_rules.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"

namespace shmap {

namespace {

// ---- all_gather
// The result has equal values on all ranks but is typed as varying: it can then be used with
// varying values, and its transpose is a psum_scatter.
void vary_all_gather(Types in, const Params& params, const detail::AxisEnv& env,
                     std::span<ShapedArray> out) {
  const auto& p = params_as<AllGatherParams>(params);
  require_ranks(p.axes, p.groups, p.ranks, env, "all_gather");
  varying_to_varying(in, p.axes, env, out, "all_gather");
}

// ---- psum_scatter
void eval_psum_scatter(Types in, const Params& params, std::span<ShapedArray> out) {
  const DType t = in[0].dtype();
  if (!is_integer(t) && !is_floating(t)) {
    throw TypeError(std::string("psum_scatter: of an operand of type ") + to_string(in[0]) +
                    ": numbers are wanted; convert it with astype");
  }
  out[0] = ShapedArray(scattered_shape(in[0], params_as<ScatterParams>(params), "psum_scatter"), t,
                       in[0].weak(), AxisSet());
}

void vary_psum_scatter(Types in, const Params& params, const detail::AxisEnv& env,
                       std::span<ShapedArray> out) {
  const auto& p = params_as<ScatterParams>(params);
  require_ranks(p.axes, p.groups, p.ranks, env, "psum_scatter");
  varying_to_varying(in, p.axes, env, out, "psum_scatter");
}

void run_psum_scatter(GroupCall& call) {
  const auto& p = params_as<ScatterParams>(call.params);
  const GroupBlocks blocks = group_blocks(call, p.axes, p.groups);
  if (begin_collective(blocks)) return;
  communicator(blocks, CollectiveKind::reduce_scatter)
      .reduce_scatter(blocks, interleaved(call.out[0]->type, p.dimension), Reduction::sum,
                      call.in[0]->type.dtype());
}

// ---- each the other's transpose
void transpose_all_gather(TransposeCall& call) {
  const ScatterParams dual = dual_of(params_as<AllGatherParams>(call.params));
  call.out[0] = bind(psum_scatter_p, call.cotangents[0], dual, call.source);
}

void transpose_psum_scatter(TransposeCall& call) {
  const AllGatherParams dual = dual_of(params_as<ScatterParams>(call.params));
  call.out[0] = bind(all_gather_p, call.cotangents[0], dual, call.source);
}

}  // namespace

constinit Primitive all_gather_p = [] {
  Primitive p;
  p.name = "all_gather";
  p.abstract_eval = eval_gather;
  p.variance = vary_all_gather;
  p.group = run_gather;
  p.sharding = Rule<ShardingRuleFn>(split_gather);
  p.batching = Rule<BatchFn>(batch_gather_blocks);
  p.traffic = Traffic::gather;
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_all_gather);
  return p;
}();

constinit Primitive psum_scatter_p = [] {
  Primitive p;
  p.name = "psum_scatter";
  p.abstract_eval = eval_psum_scatter;
  p.variance = vary_psum_scatter;
  p.group = run_psum_scatter;
  p.sharding = Rule<ShardingRuleFn>(split_scatter);
  p.batching = Rule<BatchFn>(batch_scatter_blocks);
  p.traffic = Traffic::scatter;
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_psum_scatter);
  return p;
}();

void register_collectives_all_gather() {
  register_primitive(all_gather_p);
  register_primitive(psum_scatter_p);
}

namespace detail {

Array all_gather_leaf(const Array& x, const Axes& axes, const AllGatherOptions& options,
                      SourceLine source) {
  return gather_leaf(all_gather_p, x, axes, options, source);
}

Array psum_scatter_leaf(const Array& x, const Axes& axes, const PsumScatterOptions& options,
                        SourceLine source) {
  const AxesInScope scope(axes, "psum_scatter", source);
  const ShapedArray& type = checked_node(x, "psum_scatter", source).type;
  ScatterParams p;
  p.ranks = group_size(options.axis_index_groups, scope.ranks, "psum_scatter", axes, source);
  p.axes = axes;
  p.groups = options.axis_index_groups;
  p.tiled = options.tiled;
  p.dimension = dim_of(options.scatter_dimension, type.rank(), "psum_scatter", source);
  Array counted = type.dtype() == DType::bool_ ? convert(x, i32, source) : x;
  return bind(psum_scatter_p, cast_to_varying(counted, axes, scope, "psum_scatter", source), p,
              source);
}

}  // namespace detail
}  // namespace shmap
