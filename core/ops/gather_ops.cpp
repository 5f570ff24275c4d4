#include "core/ops/gather_ops.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/base/contains.h"
#include "core/base/counted.h"
#include "core/base/element_type.h"
#include "core/ir/node.h"
#include "core/ops/batch_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "core/ops/scatter.h"
#include "core/ops/shape_params.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// Whether dim d of the operand is a dim of the slices.
bool is_window(const GatherParams& p, std::size_t d) {
  return !contains(p.collapsed_slice_dims, static_cast<std::int64_t>(d)) &&
         !contains(p.operand_batching_dims, static_cast<std::int64_t>(d));
}

void check_gather(Types in, const GatherParams& p) {
  const auto fail = [&](const std::string& why) {
    throw ValueError("gather: of an operand of type " + to_string(in[0]) + " at indices of type " +
                     to_string(in[1]) + ": " + why);
  };
  const int rank = in[0].rank();
  if (!is_integer(in[1].dtype())) {
    throw TypeError("gather: the indices have type " + to_string(in[1]) +
                    ", and integers are wanted");
  }
  if (in[1].rank() < 1) fail("the indices have no last dim, which holds the index vectors");
  const auto vector = static_cast<std::size_t>(in[1].dims().back());
  if (p.start_index_map.size() != vector)
    fail("start_index_map has " + counted(p.start_index_map.size(), "dim") +
         ", and the index vectors have " + counted(vector, "entry", "entries"));
  if (!distinct_dims(p.start_index_map, rank))
    fail("start_index_map must name dims of the operand, each once");
  if (!ascending_dims(p.collapsed_slice_dims, rank) ||
      !ascending_dims(p.operand_batching_dims, rank))
    fail("collapsed_slice_dims and batching dims must be ascending dims of the operand");
  if (static_cast<int>(p.slice_sizes.size()) != rank)
    fail("slice_sizes " + to_string(p.slice_sizes) + " must have an extent for each dim");
  int windows = 0;
  for (std::size_t d = 0; d < p.slice_sizes.size(); ++d) {
    const std::int64_t size = p.slice_sizes[d];
    if (size < 0 || size > in[0].dims()[d])
      fail("slice_sizes " + to_string(p.slice_sizes) + " do not lie inside the operand in dim " +
           std::to_string(d));
    if (is_window(p, d)) {
      ++windows;
    } else if (size != 1) {
      fail("dim " + std::to_string(d) + " is collapsed, and its slice size is " +
           std::to_string(size) + " instead of 1");
    }
  }
  if (static_cast<int>(p.offset_dims.size()) != windows ||
      !ascending_dims(p.offset_dims, windows + in[1].rank() - 1))
    fail(
        "offset_dims must name, ascending, a dim of the result for each dim of a slice that "
        "is not collapsed: " +
        std::to_string(windows));
}

void eval_gather(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<GatherParams>(params);
  check_gather(in, p);
  const int rank = static_cast<int>(p.offset_dims.size()) + in[1].rank() - 1;
  Shape shape;
  std::size_t window = 0, batch = 0;
  for (int d = 0; d < rank; ++d) {
    if (!contains(p.offset_dims, d)) {
      shape.push_back(in[1].dims()[batch++]);
      continue;
    }
    while (!is_window(p, window)) ++window;
    shape.push_back(p.slice_sizes[window++]);
  }
  checked_bytes(shape, itemsize(in[0].dtype()));
  out[0] = ShapedArray(shape, in[0].dtype(), in[0].weak(), AxisSet());
}

Cost cost_gather(Types in, const Params&, Types out) {
  return {0, 2.0 * static_cast<double>(out[0].nbytes()) + static_cast<double>(in[1].nbytes())};
}

// A dim of the operand that slices take whole, and that has no index, is split as in the result;
// the dims of the indices are split as in the result.
FactorRule shard_gather(Types in, const Params& params, Types out) {
  const auto& p = params_as<GatherParams>(params);
  FactorRule rule;
  rule.operands.resize(2);
  rule.operands[0].resize(in[0].dims().size());
  rule.operands[1].resize(in[1].dims().size());
  rule.results.emplace_back(out[0].dims().size());
  std::size_t window = 0, batch = 0;
  for (std::size_t d = 0; d < out[0].dims().size(); ++d) {
    const int f = static_cast<int>(rule.factors.size());
    if (contains(p.offset_dims, static_cast<std::int64_t>(d))) {
      while (!is_window(p, window)) ++window;
      const std::size_t from = window++;
      if (p.slice_sizes[from] != in[0].dims()[from] ||
          contains(p.start_index_map, static_cast<std::int64_t>(from)))
        continue;
      rule.operands[0][from].push_back(f);
    } else {
      const std::size_t from = batch++;
      if (contains(p.start_indices_batching_dims, static_cast<std::int64_t>(from))) continue;
      rule.operands[1][from].push_back(f);
    }
    rule.results[0][d].push_back(f);
    rule.factors.push_back({out[0].dims()[d], FactorKind::pass});
  }
  rule.localize = [](const Params& global, Types, Types local) -> std::unique_ptr<Params> {
    auto mine = std::make_unique<GatherParams>(params_as<GatherParams>(global));
    std::size_t at = 0;
    for (std::size_t d = 0; d < mine->slice_sizes.size(); ++d) {
      if (is_window(*mine, d))
        mine->slice_sizes[d] = local[0].dims()[static_cast<std::size_t>(mine->offset_dims[at++])];
    }
    return mine;
  };
  return rule;
}

// Linear in the operand. Slices out of range get the tangent zero, not the fill value.
GatherParams tangent_params(const Params& params) {
  GatherParams p = params_as<GatherParams>(params);
  if (p.mode == GatherMode::fill) p.mode = GatherMode::zero;
  return p;
}

void jvp_gather(JvpCall& call) {
  call.run();
  call.tangents_out[0] =
      bind(gather_p, call.tangents[0], call.primals[1], tangent_params(call.params), call.source);
}

// Adds each slice's cotangent at the slice's position.
void transpose_gather(TransposeCall& call) {
  Array in[] = {zeros_of(call.in_types[0], call.source), call.in[1], call.cotangents[0]};
  call.out[0] =
      bind(scatter_add_p, in, scatter_of(params_as<GatherParams>(call.params)), call.source);
}

// Adds a last dim of extent 1 to the indices, which makes them index vectors of one entry.
Array as_vectors(const Array& indices, SourceLine source) {
  Shape shape = indices.shape();
  shape.push_back(1);
  return bind_reshape(indices, shape, source);
}

// Reading along a dim without elements gives the empty array of the result's shape.
Array empty_items(const Array& x, const Shape& batch, const Dims& dims, int at, SourceLine source) {
  const Shape from = x.shape();
  Shape left, result;
  for (int d = 0; d < from.rank(); ++d)
    if (!contains(dims, d)) left.push_back(from[static_cast<std::size_t>(d)]);
  for (int d = 0; d <= left.rank(); ++d) {
    if (d == at)
      for (std::int64_t e : batch) result.push_back(e);
    if (d < left.rank()) result.push_back(left[static_cast<std::size_t>(d)]);
  }
  return bind_reshape(x, result, source);
}

Array take_along(Operand&& x, Operand&& indices, int dim) {
  const std::int64_t extent = x.value.shape()[static_cast<std::size_t>(dim)];
  const std::vector<Array> at{
      wrap_indices(std::move(indices.value), extent, "take", indices.source)};
  return gather_items(std::move(x.value), at, dim, dim, GatherMode::fill, x.source);
}

}  // namespace

bool ascending_dims(const IntList& list, int rank) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i] < 0 || list[i] >= rank || (i && list[i] <= list[i - 1])) return false;
  return true;
}

bool distinct_dims(const IntList& list, int rank) {
  std::uint32_t seen = 0;
  for (std::int64_t d : list) {
    if (d < 0 || d >= rank || (seen >> d & 1u)) return false;
    seen |= 1u << d;
  }
  return true;
}

constinit Primitive gather_p = [] {
  Primitive p;
  p.name = "gather";
  p.abstract_eval = eval_gather;
  p.cost = cost_gather;
  p.sharding = Rule<ShardingRuleFn>(shard_gather);
  p.jvp = Rule<JvpFn>(jvp_gather);
  p.transpose = Rule<TransposeFn>(transpose_gather);
  p.batching = Rule<BatchFn>(batch_gather);
  return p;
}();

std::uint64_t none_bits(DType t) {
  if (t == DType::prng_key) return ~std::uint64_t{0};
  return with_plain(t, []<class T>() {
    using Limits = std::numeric_limits<T>;
    T none;
    if constexpr (!std::is_integral_v<T>)
      none = T(std::numeric_limits<float>::quiet_NaN());
    else
      none = std::is_signed_v<T> ? Limits::min() : Limits::max();
    std::uint64_t bits = 0;
    std::memcpy(&bits, &none, sizeof none);
    return bits;
  });
}

std::string_view name_of(GatherMode mode) {
  switch (mode) {
    case GatherMode::clip:
      return "clip";
    case GatherMode::fill:
      return "fill";
    case GatherMode::zero:
      return "zero";
  }
  return "";
}

void register_gather_ops() { register_primitive(gather_p); }

Array wrap_indices(Array indices, std::int64_t extent, const char* what, SourceLine source) {
  const ShapedArray type = checked_node(indices, what, source).type;
  if (!is_integer(type.dtype())) {
    throw TypeError(std::string(what) + ": indices of type " + to_string(type) +
                    ": integers are wanted" +
                    (type.dtype() == DType::bool_ ? "; choose by a mask with where(mask, x, y)"
                                                  : "; convert them with astype") +
                    at_line(source));
  }
  if (is_unsigned_int(type.dtype())) return indices;
  const bool wide = type.dtype() == DType::i64 || extent > std::numeric_limits<std::int32_t>::max();
  const DType dtype = wide ? DType::i64 : DType::i32;
  indices = convert(std::move(indices), dtype, source);
  const Array negative = bind(lt_p, indices, convert(Array(0), dtype, source), no_params, source);
  const Array from_end =
      bind(add_p, indices, convert(Array(extent), dtype, source), no_params, source);
  Array in[] = {negative, indices, from_end};
  return bind(select_n_p, in, no_params, source);
}

Array gather_items(Array x, const std::vector<Array>& indices, const Dims& dims, int at,
                   GatherMode mode, SourceLine source) {
  const Shape shape = x.shape();
  const int batch = indices[0].ndim();
  GatherParams params;
  params.mode = mode;
  params.slice_sizes = shape;
  params.start_index_map = dims;
  for (std::int64_t d : dims) params.slice_sizes[static_cast<std::size_t>(d)] = 1;
  for (std::int64_t d : dims) {
    const std::int64_t extent = shape[static_cast<std::size_t>(d)];
    if (extent > 0) continue;
    if (indices[0].size() > 0) {
      throw ValueError("an index of dim " + std::to_string(d) + " of an array of type " +
                       to_string(x.type()) + ", which has no elements" + at_line(source));
    }
    return empty_items(x, indices[0].shape(), dims, at, source);
  }
  const int left = shape.rank() - static_cast<int>(dims.size());
  for (int d = 0; d < left; ++d) params.offset_dims.push_back(d < at ? d : d + batch);
  for (int d = 0; d < shape.rank(); ++d)
    if (contains(dims, d)) params.collapsed_slice_dims.push_back(d);
  std::vector<Array> vectors;
  for (const Array& each : indices) vectors.push_back(as_vectors(each, source));
  Array start = bind_concatenate(vectors, batch, source);
  return bind(gather_p, std::move(x), std::move(start), params, source);
}

// ---- user functions

Array gather(Operand x, Operand start_indices, GatherDimensionNumbers dimension_numbers,
             Shape slice_sizes) {
  type_of(x, "gather");
  type_of(start_indices, "gather");
  GatherParams params;
  params.offset_dims = Dims(dimension_numbers.offset_dims);
  params.collapsed_slice_dims = Dims(dimension_numbers.collapsed_slice_dims);
  params.start_index_map = Dims(dimension_numbers.start_index_map);
  params.slice_sizes = slice_sizes;
  return bind(gather_p, std::move(x.value), std::move(start_indices.value), params, x.source);
}

Array take(Operand x, Operand indices) {
  const FunctionScope scope("take", {&x.value, &indices.value}, x.source);
  const std::int64_t size = type_of(x, "take").size();
  type_of(indices, "take");
  x.value = bind_reshape(std::move(x.value), {size}, x.source);
  return take_along(std::move(x), std::move(indices), 0);
}
Array take(Operand x, Operand indices, int axis) {
  const FunctionScope scope("take", {&x.value, &indices.value}, x.source);
  const int rank = type_of(x, "take").rank();
  type_of(indices, "take");
  const int dim = at_source(x.source, [&] { return normalize_dim(axis, rank, "take"); });
  return take_along(std::move(x), std::move(indices), dim);
}

Array one_hot(Operand x, std::int64_t num_classes, DType dtype) {
  const FunctionScope scope("one_hot", {&x.value}, x.source);
  const ShapedArray type = type_of(x, "one_hot");
  if (num_classes < 0) {
    throw ValueError("one_hot: num_classes is " + std::to_string(num_classes) +
                     ": 0 or more is wanted" + at_line(x.source));
  }
  // Narrow dtypes may not hold the number of every class.
  const DType wide = num_classes > INT32_MAX ? DType::i64 : DType::i32;
  const bool narrow = type.dtype() == DType::bool_ || itemsize(type.dtype()) < itemsize(wide);
  if (!is_floating(type.dtype()) && narrow) x.value = convert(std::move(x.value), wide, x.source);
  const SourceLine source = x.source;
  Operand classes(bind_iota(x.value.dtype(), {num_classes}, 0, source), source.file, source.line);
  Operand value(as_vectors(x.value, source), source.file, source.line);
  broadcast(value, classes, "one_hot");
  return convert(bind(eq_p, std::move(value.value), std::move(classes.value), no_params, source),
                 dtype, source);
}

}  // namespace shmap
