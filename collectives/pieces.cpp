#include "collectives/pieces.h"

#include "collectives/group.h"
#include "collectives/scope.h"
#include "core/ir/node.h"

namespace shmap {

Shape gathered_shape(const Shape& in, const AllGatherParams& p) {
  Shape out;
  const auto d = static_cast<std::size_t>(p.dimension);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (i == d && !p.tiled) out.push_back(p.ranks);
    out.push_back(i == d && p.tiled ? checked_product(in[i], p.ranks, "all_gather") : in[i]);
  }
  if (d == in.size() && !p.tiled) out.push_back(p.ranks);
  out.num_elements();  // throws if the product overflows
  return out;
}

Shape scattered_shape(const ShapedArray& in, const ScatterParams& p, const char* what) {
  const auto d = static_cast<std::size_t>(p.dimension);
  const Shape& shape = in.dims();
  if (p.tiled ? shape[d] % p.ranks != 0 : shape[d] != p.ranks) {
    throw_not_cut(what, "dim " + std::to_string(d), in, shape[d], p.tiled, p.axes, p.ranks,
                  p.groups);
  }
  Shape out;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != d) {
      out.push_back(shape[i]);
    } else if (p.tiled) {
      out.push_back(shape[i] / p.ranks);
    }
  }
  return out;
}

Interleaved interleaved(const ShapedArray& piece, int dimension) {
  Interleaved parts{1, itemsize(piece.dtype()), itemsize(piece.dtype())};
  const Shape& shape = piece.dims();
  for (std::size_t i = 0; i < shape.size(); ++i)
    (static_cast<int>(i) < dimension ? parts.outer : parts.piece) *= shape[i];
  return parts;
}

void eval_gather(Types in, const Params& params, std::span<ShapedArray> out) {
  out[0] = ShapedArray(gathered_shape(in[0].dims(), params_as<AllGatherParams>(params)),
                       in[0].dtype(), in[0].weak(), AxisSet());
}

void run_gather(GroupCall& call) {
  const auto& p = params_as<AllGatherParams>(call.params);
  const GroupBlocks blocks = group_blocks(call, p.axes, p.groups);
  if (begin_collective(blocks)) return;
  communicator(blocks, CollectiveKind::all_gather)
      .all_gather(blocks, interleaved(call.in[0]->type, p.dimension));
}

namespace detail {

int dim_of(int dim, int rank, const char* what, SourceLine source) {
  try {
    return normalize_dim(dim, rank, what);
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  }
}

Array gather_leaf(const Primitive& primitive, const Array& x, const Axes& axes,
                  const AllGatherOptions& options, SourceLine source) {
  const AxesInScope scope(axes, primitive.name, source);
  const ShapedArray& type = checked_node(x, primitive.name, source).type;
  AllGatherParams p;
  p.ranks = group_size(options.axis_index_groups, scope.ranks, primitive.name, axes, source);
  p.axes = axes;
  p.groups = options.axis_index_groups;
  p.tiled = options.tiled;
  p.dimension = dim_of(options.axis, type.rank() + !options.tiled, primitive.name, source);
  return bind(primitive, cast_to_varying(x, axes, scope, primitive.name, source), p, source);
}

}  // namespace detail
}  // namespace shmap
