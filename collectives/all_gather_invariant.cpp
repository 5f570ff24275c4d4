// all_gather_invariant (varying -> invariant) and pscatter (invariant -> varying), each the other's
// transpose.
#include "collectives/batch_rules.h"
#include "collectives/group.h"
#include "collectives/piece_work.h"
#include "collectives/pieces.h"
#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "collectives/sharding_rules.h"
#include "core/base/inline_vector.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/runtime/launch.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// ---- all_gather_invariant
void vary_all_gather_invariant(Types in, const Params& params, const detail::AxisEnv& env,
                               std::span<ShapedArray> out) {
  const auto& p = params_as<AllGatherParams>(params);
  require_ranks(p.axes, p.groups, p.ranks, env, "all_gather_invariant");
  varying_to_invariant(in, p.axes, p.groups, env, out, "all_gather_invariant");
}

// ---- pscatter
void eval_pscatter(Types in, const Params& params, std::span<ShapedArray> out) {
  out[0] = ShapedArray(scattered_shape(in[0], params_as<ScatterParams>(params), "pscatter"),
                       in[0].dtype(), in[0].weak(), AxisSet());
}

void vary_pscatter(Types in, const Params& params, const detail::AxisEnv& env,
                   std::span<ShapedArray> out) {
  const auto& p = params_as<ScatterParams>(params);
  require_ranks(p.axes, p.groups, p.ranks, env, "pscatter");
  invariant_to_varying(in, p.axes, env, out, "pscatter");
}

// A piece that is contiguous in the operand becomes an offset into the operand. Other pieces are
// copied, on the device that has both operand and result.
void run_pscatter(GroupCall& call) {
  constexpr double kBytesPerNs = 10;
  const auto& p = params_as<ScatterParams>(call.params);
  const GroupBlocks blocks = group_blocks(call, p.axes, p.groups);
  const CliqueTable& table = blocks.cliques;
  const Interleaved parts = interleaved(call.out[0]->type, p.dimension);
  if (parts.outer == 1 || table.ranks == 1) {
    for (std::size_t i = 0; i < blocks.out.size(); ++i) {
      blocks.out[i] = blocks.in[i];
      blocks.out[i].offset += table.rank_blocks[table.rank_block_of[i]].rank * parts.piece;
    }
    return;
  }
  InlineVector<Block, 16> results(table.rank_blocks.size());
  {
    std::lock_guard lock(call.mesh.backend().submit_mutex());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const CliqueTable::RankBlock& to = table.rank_blocks[i];
      const LocalDevice& device = call.mesh.local(to.position);
      results[i].buffer = device.space->allocate(blocks.out_bytes, MemorySpace::For::tasks);
      if (blocks.out_bytes == 0) continue;
      const Block& from = blocks.in[to.position];
      StridedCopy box = pieces_box(parts, table.ranks, 1);
      box.src = static_cast<const std::byte*>(from.data()) + to.rank * parts.piece;
      box.dst = results[i].data();
      LaunchSpec at;
      at.stream = device.compute;
      at.name = "pscatter";
      at.bytes = blocks.out_bytes;
      at.cost_ns = static_cast<std::int64_t>(static_cast<double>(blocks.out_bytes) / kBytesPerNs);
      Buffer* reads[] = {from.buffer.get()};
      Buffer* writes[] = {results[i].buffer.get()};
      launch(
          at, reads, writes,
          [box, ops = &device_ops(blocks.mesh.backend())](int part, int part_count, void* native) {
            ops->copy_box(box, part, part_count, native);
          });
      count(Counter::copies);
      count(Counter::copied_bytes, blocks.out_bytes);
    }
  }
  for (std::size_t i = 0; i < blocks.out.size(); ++i)
    blocks.out[i] = results[table.rank_block_of[i]];
}

// ---- each the other's transpose
// With tracked variance and without groups, the gathered value and its cotangent are equal on all
// ranks, and each rank takes its piece. Otherwise cotangents may differ and are summed.
void transpose_all_gather_invariant(TransposeCall& call) {
  const auto& p = params_as<AllGatherParams>(call.params);
  const bool invariant = p.groups.empty() && current_trace().checks_variance();
  call.out[0] =
      bind(invariant ? pscatter_p : psum_scatter_p, call.cotangents[0], dual_of(p), call.source);
}

// Without variance tracking the result is zeros with this rank's piece: mapped functions sum it.
void transpose_pscatter(TransposeCall& call) {
  const auto& p = params_as<ScatterParams>(call.params);
  const Array& ct = call.cotangents[0];
  if (current_trace().checks_variance()) {
    call.out[0] = bind(all_gather_invariant_p, ct, dual_of(p), call.source);
    return;
  }
  const auto d = static_cast<std::size_t>(p.dimension);
  const ShapedArray& whole = call.in_types[0];
  Shape piece = whole.dims();
  piece[d] /= p.ranks;
  std::vector<Array> in = {zeros(whole.dims(), whole.dtype(), call.source),
                           bind_reshape(ct, piece, call.source)};
  // The starts, rank × piece, do not fit into i32 where the whole dim does not.
  const DType wide = whole.dims()[d] > INT32_MAX ? DType::i64 : DType::i32;
  const Array rank =
      convert(shmap::bind(axis_index_p, std::span<Array>(), NamesParams(p.axes), call.source), wide,
              call.source);
  for (std::size_t k = 0; k < piece.size(); ++k) {
    const auto step = static_cast<double>(k == d ? piece[d] : 0);
    in.push_back(bind(mul_p, rank, scalar_of(wide, step, call.source), no_params, call.source));
  }
  call.out[0] = shmap::bind(dynamic_update_slice_p, std::span<Array>(in), no_params, call.source);
}

}  // namespace

constinit Primitive all_gather_invariant_p = [] {
  Primitive p;
  p.name = "all_gather_invariant";
  p.abstract_eval = eval_gather;
  p.variance = vary_all_gather_invariant;
  p.group = run_gather;
  p.sharding = Rule<ShardingRuleFn>(split_gather);
  p.batching = Rule<BatchFn>(batch_gather_blocks);
  p.traffic = Traffic::gather;
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_all_gather_invariant);
  return p;
}();

constinit Primitive pscatter_p = [] {
  Primitive p;
  p.name = "pscatter";
  p.abstract_eval = eval_pscatter;
  p.variance = vary_pscatter;
  p.group = run_pscatter;
  p.sharding = Rule<ShardingRuleFn>(split_scatter);
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_pscatter);
  p.batching = Rule<BatchFn>(batch_scatter_blocks);
  return p;
}();

void register_collectives_all_gather_invariant() {
  register_primitive(all_gather_invariant_p);
  register_primitive(pscatter_p);
}

namespace detail {

Array all_gather_invariant_leaf(const Array& x, const Axes& axes, const AllGatherOptions& options,
                                SourceLine source) {
  return gather_leaf(all_gather_invariant_p, x, axes, options, source);
}

Array pscatter_leaf(const Array& x, const Axes& axes, const PscatterOptions& options,
                    SourceLine source) {
  const AxesInScope scope(axes, "pscatter", source);
  const ShapedArray& type = checked_node(x, "pscatter", source).type;
  ScatterParams p;
  p.axes = axes;
  p.ranks = scope.ranks;
  p.tiled = options.tiled;
  p.dimension = dim_of(options.scatter_dimension, type.rank(), "pscatter", source);
  return bind(pscatter_p, x, p, source);
}

}  // namespace detail
}  // namespace shmap
