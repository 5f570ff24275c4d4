// axis_index: a device's own rank.
#include "collectives/batch_rules.h"
#include "collectives/clique_table.h"
#include "collectives/give_blocks.h"
#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "core/base/counters.h"
#include "core/base/inline_vector.h"
#include "core/runtime/host_constant.h"
#include "core/runtime/kernel.h"

namespace shmap {

namespace {

void eval_axis_index(Types, const Params&, std::span<ShapedArray> out) {
  out[0] = ShapedArray(Shape(), i32, false, AxisSet());
}

void vary_axis_index(Types, const Params& params, const detail::AxisEnv& env,
                     std::span<ShapedArray> out) {
  const Axes& axes = params_as<NamesParams>(params).axes;
  out[0] = out[0].with_axes(AxisSet(&env, mask_of(axes, env, "axis_index")));
}

// Writes the ranks next to each other into one buffer for each memory space.
void run_axis_index(GroupCall& call) {
  const Axes& axes = params_as<NamesParams>(call.params).axes;
  const CliqueTable& table = clique_table(call.mesh, axes.names(), {}, 0);
  constexpr std::int64_t kItem = sizeof(std::int32_t);
  InlineVector<Block, 16> results(table.rank_blocks.size());
  for (const CliqueTable::Target& target : table.targets) {
    InlineVector<std::int32_t, 64> ranks(target.block_count);
    for (std::uint32_t i = 0; i < target.block_count; ++i)
      ranks[i] = static_cast<std::int32_t>(table.rank_blocks[target.first_block + i].rank);
    const BufferRef buffer = target.space->allocate(target.block_count * kItem);
    write_constant(call.mesh.backend(), call.mesh.local(target.position), *buffer, ranks.data(),
                   target.block_count * kItem);
    for (std::uint32_t i = 0; i < target.block_count; ++i)
      results[target.first_block + i] = {buffer, i * kItem};
  }
  give_rank_blocks(table, results.span(), call.out[0]->blocks());
}

std::uint64_t rank_on_host(const Params& params, const detail::MeshImpl& mesh,
                           std::uint32_t position, std::span<const std::uint64_t>) {
  const CliqueTable& table = clique_table(mesh, params_as<NamesParams>(params).axes.names(), {}, 0);
  return static_cast<std::uint64_t>(table.rank_blocks[table.rank_block_of[position]].rank);
}

}  // namespace

constinit Primitive axis_index_p = [] {
  Primitive p;
  p.name = "axis_index";
  p.jvp = Rule<JvpFn>::none("it has no operand");
  p.transpose = Rule<TransposeFn>::none("it has no operand");
  p.abstract_eval = eval_axis_index;
  p.variance = vary_axis_index;
  p.group = run_axis_index;
  p.host_scalar = rank_on_host;
  p.batching = Rule<BatchFn>::none("it has no operands that could have a batch dim");
  return p;
}();

void register_collectives_axis_index() { register_primitive(axis_index_p); }

Array axis_index(const Axes& axes, SourceLine source) {
  const AxesInScope scope(axes, "axis_index", source);
  return shmap::bind(axis_index_p, std::span<Array>(), NamesParams(axes), source);
}

int axis_size(const Axes& axes, SourceLine source) {
  return AxesInScope(axes, "axis_size", source).ranks;
}

}  // namespace shmap
