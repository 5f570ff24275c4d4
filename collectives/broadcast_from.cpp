// broadcast_from (varying -> invariant): the block of one rank on all of them.
#include "collectives/batch_rules.h"
#include "collectives/group.h"
#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "collectives/sharding_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

void eval_broadcast_from(Types in, const Params&, std::span<ShapedArray> out) { out[0] = in[0]; }

void vary_broadcast_from(Types in, const Params& params, const detail::AxisEnv& env,
                         std::span<ShapedArray> out) {
  const auto& p = params_as<SourceParams>(params);
  require_rank(p.axes, p.rank, env, "broadcast_from");
  varying_to_invariant(in, p.axes, env, out, "broadcast_from");
}

void run_broadcast_from(GroupCall& call) {
  const auto& p = params_as<SourceParams>(call.params);
  const GroupBlocks blocks = group_blocks(call, p.axes, {});
  if (begin_collective(blocks)) return;
  communicator(blocks, CollectiveKind::broadcast)
      .broadcast(blocks, static_cast<std::uint32_t>(p.rank));
}

// Only the source rank gets the cotangent, because the other ranks' blocks are not part of the
// result. Without variance tracking the ranks' cotangents are summed.
void transpose_broadcast_from(TransposeCall& call) {
  const auto& p = params_as<SourceParams>(call.params);
  const bool invariant = current_trace().checks_variance();
  const Array whole =
      bind(invariant ? pbroadcast_p : psum_p, call.cotangents[0], AxesParams(p.axes), call.source);
  const Array rank =
      shmap::bind(axis_index_p, std::span<Array>(), NamesParams(p.axes), call.source);
  Array in[] = {
      bind(eq_p, rank, scalar_of(DType::i32, p.rank, call.source), no_params, call.source),
      scalar_of(whole.dtype(), 0, call.source), whole};
  call.out[0] = shmap::bind(select_n_p, std::span<Array>(in), no_params, call.source);
}

}  // namespace

constinit Primitive broadcast_from_p = [] {
  Primitive p;
  p.name = "broadcast_from";
  p.abstract_eval = eval_broadcast_from;
  p.variance = vary_broadcast_from;
  p.group = run_broadcast_from;
  p.sharding = Rule<ShardingRuleFn>(split_as_operand);
  p.batching = Rule<BatchFn>(batch_in_place);
  p.traffic = Traffic::broadcast;
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_broadcast_from);
  return p;
}();

void register_collectives_broadcast_from() { register_primitive(broadcast_from_p); }

namespace detail {

Array broadcast_from_leaf(const Array& x, const Axes& axes, int rank, SourceLine source) {
  const AxesInScope scope(axes, "broadcast_from", source);
  if (rank < 0 || rank >= scope.ranks) {
    throw ValueError("broadcast_from: source rank " + std::to_string(rank) +
                     " is out of range: there are " + describe_ranks(axes, scope.ranks) +
                     at_line(source));
  }
  return bind(broadcast_from_p, cast_to_varying(x, axes, scope, "broadcast_from", source),
              SourceParams(axes, rank), source);
}

}  // namespace detail
}  // namespace shmap
