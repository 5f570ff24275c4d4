// all_to_all (varying -> varying), its own transpose with split and concat axes swapped; pswapaxes.
#include "collectives/batch_rules.h"
#include "collectives/group.h"
#include "collectives/pieces.h"
#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "collectives/sharding_rules.h"
#include "core/base/counted.h"
#include "core/ops/rules.h"

namespace shmap {

namespace {

// The shape of a piece, which one rank sends to another: the operand's shape with 1 / ranks of
// split_axis, or without split_axis.
Shape piece_shape(const Shape& in, const AllToAllParams& p) {
  Shape piece;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (static_cast<int>(i) != p.split_axis) {
      piece.push_back(in[i]);
    } else if (p.tiled) {
      piece.push_back(in[i] / p.ranks);
    }
  }
  return piece;
}

void eval_all_to_all(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<AllToAllParams>(params);
  const Shape& shape = in[0].dims();
  const std::int64_t extent = shape[static_cast<std::size_t>(p.split_axis)];
  if (p.tiled ? extent % p.ranks != 0 : extent != p.ranks) {
    throw_not_cut("all_to_all", "split_axis " + std::to_string(p.split_axis), in[0], extent,
                  p.tiled, p.axes, p.ranks, p.groups);
  }
  const Shape piece = piece_shape(shape, p);
  Shape result;
  for (std::size_t i = 0; i < piece.size() + !p.tiled; ++i) {
    const bool here = static_cast<int>(i) == p.concat_axis;
    if (p.tiled) {
      result.push_back(here ? checked_product(piece[i], p.ranks, "all_to_all") : piece[i]);
    } else {
      result.push_back(here ? p.ranks : piece[static_cast<int>(i) > p.concat_axis ? i - 1 : i]);
    }
  }
  out[0] = ShapedArray(result, in[0].dtype(), in[0].weak(), AxisSet());
}

void vary_all_to_all(Types in, const Params& params, const detail::AxisEnv& env,
                     std::span<ShapedArray> out) {
  const auto& p = params_as<AllToAllParams>(params);
  require_ranks(p.axes, p.groups, p.ranks, env, "all_to_all");
  varying_to_varying(in, p.axes, env, out, "all_to_all");
}

// The layout of a piece in the operand of its sender and in the result of its receiver.
Exchange make_exchange(const ShapedArray& in, const ShapedArray& out, const AllToAllParams& p) {
  const int item = itemsize(in.dtype());
  const Shape piece = piece_shape(in.dims(), p);
  Exchange e;
  e.box.itemsize = item;
  e.box.rank = piece.rank();
  for (int d = 0; d < piece.rank(); ++d) e.box.extent[d] = piece[static_cast<std::size_t>(d)];
  std::int64_t stride = item;
  for (int d = in.rank(); d-- > 0;) {
    const std::int64_t extent = in.dims()[static_cast<std::size_t>(d)];
    if (d == p.split_axis) e.src_step = stride * (p.tiled ? extent / p.ranks : 1);
    if (p.tiled || d != p.split_axis)
      e.box.src_stride[!p.tiled && d > p.split_axis ? d - 1 : d] = stride;
    stride *= extent;
  }
  stride = item;
  for (int d = out.rank(); d-- > 0;) {
    const std::int64_t extent = out.dims()[static_cast<std::size_t>(d)];
    if (d == p.concat_axis) e.dst_step = stride * (p.tiled ? extent / p.ranks : 1);
    if (p.tiled || d != p.concat_axis)
      e.box.dst_stride[!p.tiled && d > p.concat_axis ? d - 1 : d] = stride;
    stride *= extent;
  }
  return e;
}

void run_all_to_all(GroupCall& call) {
  const auto& p = params_as<AllToAllParams>(call.params);
  const GroupBlocks blocks = group_blocks(call, p.axes, p.groups);
  if (begin_collective(blocks)) return;
  communicator(blocks, CollectiveKind::all_to_all)
      .all_to_all(blocks, make_exchange(call.in[0]->type, call.out[0]->type, p));
}

void transpose_all_to_all(TransposeCall& call) {
  AllToAllParams back = params_as<AllToAllParams>(call.params);
  std::swap(back.split_axis, back.concat_axis);
  call.out[0] = bind(all_to_all_p, call.cotangents[0], back, call.source);
}

}  // namespace

constinit Primitive all_to_all_p = [] {
  Primitive p;
  p.name = "all_to_all";
  p.abstract_eval = eval_all_to_all;
  p.variance = vary_all_to_all;
  p.group = run_all_to_all;
  p.sharding = Rule<ShardingRuleFn>(split_all_to_all);
  p.batching = Rule<BatchFn>(batch_all_to_all);
  p.traffic = Traffic::exchange;
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_all_to_all);
  return p;
}();

void register_collectives_all_to_all() { register_primitive(all_to_all_p); }

namespace detail {

namespace {

// pswapaxes is all_to_all along one dim, which has no {.tiled = true}: what it refuses, and why, is
// said here in its name.
void check_swapped(const ShapedArray& type, const AllToAllParams& p, SourceLine source) {
  const std::int64_t extent = type.dims()[p.split_axis];
  if (extent == p.ranks) return;
  throw ValueError("pswapaxes: axis " + std::to_string(p.split_axis) + " of an operand of type " +
                   to_string(type) + " has " + counted(extent, "element") +
                   ", and one element is wanted for each of the " +
                   describe_ranks(p.axes, p.ranks) + (p.groups.empty() ? "" : " of each group") +
                   ": reshape the operand to that extent, or exchange parts of the dim with "
                   "all_to_all and {.tiled = true}" +
                   at_line(source));
}

Array exchange(const Array& x, const Axes& axes, int split_axis, int concat_axis,
               const AllToAllOptions& options, bool swapped, SourceLine source) {
  const char* what = swapped ? "pswapaxes" : "all_to_all";
  const AxesInScope scope(axes, what, source);
  const ShapedArray& type = checked_node(x, what, source).type;
  AllToAllParams p;
  p.ranks = group_size(options.axis_index_groups, scope.ranks, what, axes, source);
  p.axes = axes;
  p.groups = options.axis_index_groups;
  p.tiled = options.tiled;
  p.split_axis = dim_of(split_axis, type.rank(), what, source);
  // Both forms have results of the operand's rank.
  p.concat_axis = dim_of(concat_axis, type.rank(), what, source);
  if (swapped) check_swapped(type, p, source);
  return bind(all_to_all_p, cast_to_varying(x, axes, scope, what, source), p, source);
}
}  // namespace

Array all_to_all_leaf(const Array& x, const Axes& axes, int split_axis, int concat_axis,
                      const AllToAllOptions& options, SourceLine source) {
  return exchange(x, axes, split_axis, concat_axis, options, false, source);
}

Array pswapaxes_leaf(const Array& x, const Axes& axes, int axis, const PsumOptions& options,
                     SourceLine source) {
  return exchange(x, axes, axis, axis,
                  {.tiled = false, .axis_index_groups = options.axis_index_groups}, true, source);
}

}  // namespace detail
}  // namespace shmap
