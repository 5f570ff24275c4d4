#include "core/ops/slicing.h"

#include <cstring>

#include "core/base/counted.h"
#include "core/ir/node.h"
#include "core/ops/batch_rules.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/ops/shape_rules.h"
#include "core/runtime/host_transfer.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

std::string text_of(const IntList& list) {
  return to_string(Shape(std::span<const std::int64_t>(list.data(), list.size())));
}

// ---- slice

void eval_slice(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<SliceParams>(params);
  const std::size_t rank = in[0].dims().size();
  const auto text = [&] { return "slice: an operand of type " + to_string(in[0]); };
  if (p.start_indices.size() != rank || p.limit_indices.size() != rank ||
      p.strides.size() != rank) {
    throw ValueError(text() + ", starts " + text_of(p.start_indices) + ", limits " +
                     text_of(p.limit_indices) + " and strides " + text_of(p.strides) +
                     ": one each is wanted for every dim");
  }
  Shape shape;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t start = p.start_indices[d], limit = p.limit_indices[d], by = p.strides[d];
    if (start < 0 || limit < start || limit > in[0].dims()[d] || by < 1) {
      throw ValueError(text() + ": of dim " + std::to_string(d) + " items " +
                       std::to_string(start) + " to " + std::to_string(limit) + " in steps of " +
                       std::to_string(by) + " are asked for, and it has items 0 to " +
                       std::to_string(in[0].dims()[d]) +
                       ": wanted 0 <= start <= limit <= extent and a step of 1 or more");
    }
    shape.push_back(items_in_steps(start, limit, by));
  }
  out[0] = ShapedArray(shape, in[0].dtype(), in[0].weak(), AxisSet());
}

std::int64_t view_slice(const ShapedArray& in, const Params& params, const ShapedArray& out) {
  const auto& p = params_as<SliceParams>(params);
  if (out.size() == 0) return 0;
  std::int64_t offset = 0, stride = itemsize(in.dtype());
  bool whole_below = true;  // all dims further in are taken whole
  for (std::size_t d = in.dims().size(); d-- > 0;) {
    const std::int64_t taken = out.dims()[d];
    if (taken != 1 && (!whole_below || p.strides[d] != 1)) return -1;
    if (taken != in.dims()[d]) whole_below = false;
    offset += p.start_indices[d] * stride;
    stride *= in.dims()[d];
  }
  return offset;
}

// The mask of the dims that the slice does not take whole, which cannot be split.
std::uint32_t cut_dims(const Shape& whole, const Shape& part) {
  std::uint32_t mask = 0;
  for (std::size_t d = 0; d < whole.size(); ++d)
    if (whole[d] != part[d]) mask |= 1u << d;
  return mask;
}

FactorRule shard_slice(Types in, const Params&, Types out) {
  const auto localize = [](const Params& global, Types, Types local) -> std::unique_ptr<Params> {
    auto mine = std::make_unique<SliceParams>(params_as<SliceParams>(global));
    for (std::size_t d = 0; d < mine->strides.size(); ++d)
      if (mine->start_indices[d] == 0 && mine->strides[d] == 1)
        mine->limit_indices[d] = local[0].dims()[d];
    return mine;
  };
  return same_dims_rule(in, out, cut_dims(in[0].dims(), out[0].dims()), localize);
}

// ---- dynamic_slice, dynamic_update_slice

void check_starts(Types in, std::size_t first, const char* what) {
  const auto rank = static_cast<std::size_t>(in[0].rank());
  if (in.size() != first + rank) {
    throw ValueError(std::string(what) + ": an operand of type " + to_string(in[0]) + " and " +
                     counted(in.size() - first, "start") + ": one is wanted for each of its " +
                     counted(rank, "dim"));
  }
  for (std::size_t d = 0; d < rank; ++d) {
    const ShapedArray& start = in[first + d];
    if (start.rank() == 0 && is_integer(start.dtype())) continue;
    throw TypeError(std::string(what) + ": the start of dim " + std::to_string(d) + " has type " +
                    to_string(start) + ", and an integer scalar is wanted");
  }
}

void check_fits(const char* what, const ShapedArray& operand, const Shape& part) {
  bool fits = part.size() == operand.dims().size();
  for (std::size_t d = 0; fits && d < part.size(); ++d)
    fits = part[d] >= 0 && part[d] <= operand.dims()[d];
  if (fits) return;
  throw ValueError(std::string(what) + ": a part of shape " + to_string(part) +
                   " does not lie inside an operand of type " + to_string(operand) +
                   ": it must have the same rank and no greater extents");
}

void eval_dynamic_slice(Types in, const Params& params, std::span<ShapedArray> out) {
  const Shape& sizes = params_as<DynamicSliceParams>(params).slice_sizes;
  check_starts(in, 1, "dynamic_slice");
  check_fits("dynamic_slice", in[0], sizes);
  out[0] = ShapedArray(sizes, in[0].dtype(), in[0].weak(), AxisSet());
}

Cost cost_dynamic_slice(Types, const Params&, Types out) {
  return {0, 2.0 * static_cast<double>(out[0].nbytes())};
}

std::int64_t read_start(const void* data, DType dtype) {
  if (dtype == DType::i32) return *static_cast<const std::int32_t*>(data);
  std::int64_t v = 0;
  const int bytes = itemsize(dtype);
  std::memcpy(&v, data, static_cast<std::size_t>(bytes));  // little-endian
  if (bytes == 8 || is_unsigned_int(dtype)) return v;
  const int shift = 64 - 8 * bytes;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(v) << shift) >> shift;
}

// The same as view_slice with computed starts; a loop calls it in every trip. The start of a dim
// that is taken whole is not read.
std::int64_t view_dynamic_slice(Types in, std::span<const void* const> data, const Params&,
                                const ShapedArray& out) {
  const Shape &whole = in[0].dims(), &part = out.dims();
  if (out.size() == 0) return 0;
  std::int64_t offset = 0, stride = itemsize(in[0].dtype());
  bool whole_below = true;  // all dims further in are taken whole
  for (std::size_t d = whole.size(); d-- > 0; stride *= whole[d]) {
    if (part[d] != 1 && !whole_below) return -1;
    if (part[d] == whole[d]) continue;
    whole_below = false;
    const std::int64_t start = read_start(data[d + 1], in[d + 1].dtype());
    offset += clamp_start(start, whole[d], part[d]) * stride;
  }
  return offset;
}

FactorRule shard_dynamic_slice(Types in, const Params&, Types out) {
  const auto localize = [](const Params&, Types, Types local) -> std::unique_ptr<Params> {
    auto mine = std::make_unique<DynamicSliceParams>();
    mine->slice_sizes = local[0].dims();
    return mine;
  };
  FactorRule rule = same_dims_rule(in, out, cut_dims(in[0].dims(), out[0].dims()), localize);
  return rule;
}

void eval_dynamic_update_slice(Types in, const Params&, std::span<ShapedArray> out) {
  check_starts(in, 2, "dynamic_update_slice");
  check_fits("dynamic_update_slice", in[0], in[1].dims());
  if (in[0].dtype() != in[1].dtype()) {
    throw TypeError("dynamic_update_slice: an operand of type " + to_string(in[0]) +
                    " and an update of type " + to_string(in[1]) +
                    ": convert the update with astype");
  }
  out[0] = ShapedArray(in[0].dims(), in[0].dtype(), in[0].weak(), AxisSet());
}

FactorRule shard_dynamic_update_slice(Types in, const Params&, Types out) {
  return same_dims_rule(in, out, cut_dims(in[0].dims(), in[1].dims()));
}

constexpr Primitive make(const char* name, AbstractEvalFn eval, ShardingRuleFn sharding, JvpFn jvp,
                         TransposeFn transpose) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval;
  p.sharding = Rule<ShardingRuleFn>(sharding);
  p.jvp = Rule<JvpFn>(jvp);
  p.transpose = Rule<TransposeFn>(transpose);
  return p;
}

}  // namespace

constinit Primitive slice_p = [] {
  Primitive p = make("slice", eval_slice, shard_slice, jvp_linear, transpose_slice);
  p.view = view_slice;
  return p;
}();
constinit Primitive dynamic_slice_p = [] {
  Primitive p = make("dynamic_slice", eval_dynamic_slice, shard_dynamic_slice, jvp_dynamic_slice,
                     transpose_dynamic_slice);
  p.cost = cost_dynamic_slice;
  p.dynamic_view = view_dynamic_slice;
  return p;
}();
constinit Primitive dynamic_update_slice_p = [] {
  Primitive p = make("dynamic_update_slice", eval_dynamic_update_slice, shard_dynamic_update_slice,
                     jvp_dynamic_update_slice, transpose_dynamic_update_slice);
  p.in_place = true;
  p.in_place_operand = 0;
  return p;
}();

void register_slicing() {
  slice_p.batching = Rule<BatchFn>(batch_slice);
  dynamic_slice_p.batching = Rule<BatchFn>(batch_dynamic_slice);
  dynamic_update_slice_p.batching = Rule<BatchFn>(batch_dynamic_update_slice);
  for (Primitive* p : {&slice_p, &dynamic_slice_p, &dynamic_update_slice_p}) register_primitive(*p);
}

Array bind_slice(Array x, const Dims& start, const Dims& limit, const Dims& strides,
                 SourceLine source) {
  SliceParams params;
  params.start_indices = start;
  params.limit_indices = limit;
  params.strides = strides;
  return bind(slice_p, std::move(x), params, source);
}

Array slice_dim(Array x, int dim, std::int64_t start, std::int64_t limit, SourceLine source) {
  const Shape& shape = checked_node(x, "slice", source).type.dims();
  if (start == 0 && limit == shape[static_cast<std::size_t>(dim)]) return x;
  SliceParams params;
  for (std::int64_t e : shape) {
    params.start_indices.push_back(0);
    params.limit_indices.push_back(e);
    params.strides.push_back(1);
  }
  params.start_indices[static_cast<std::size_t>(dim)] = start;
  params.limit_indices[static_cast<std::size_t>(dim)] = limit;
  return bind(slice_p, std::move(x), params, source);
}

Array bind_dynamic_slice(Array x, std::span<const Array> starts, const Shape& sizes,
                         SourceLine source) {
  const ShapedArray type = checked_node(x, "dynamic_slice", source).type;
  bool known = starts.size() == type.dims().size();
  for (const Array& start : starts) {
    const Node& node = checked_node(start, "dynamic_slice", source);
    known = known && node.kind == NodeKind::literal && is_integer(node.type.dtype());
  }
  if (!known) {
    std::vector<Array> in{std::move(x)};
    in.insert(in.end(), starts.begin(), starts.end());
    DynamicSliceParams params;
    params.slice_sizes = sizes;
    return shmap::bind(dynamic_slice_p, in, params, source);
  }
  at_source(source, [&] { check_fits("dynamic_slice", type, sizes); });
  Dims first, limit, strides;
  for (std::size_t d = 0; d < starts.size(); ++d) {
    const std::int64_t start = convert(starts[d], DType::i64, source).item<std::int64_t>(source);
    first.push_back(clamp_start(start, type.dims()[d], sizes[d]));
    limit.push_back(first[d] + sizes[d]);
    strides.push_back(1);
  }
  return bind_slice(std::move(x), first, limit, strides, source);
}

// ---- user functions

Array slice(Operand x, Dims start, Dims limit) {
  Dims strides;
  for (std::size_t d = 0; d < start.size(); ++d) strides.push_back(1);
  return slice(std::move(x), start, limit, strides);
}
Array slice(Operand x, Dims start, Dims limit, Dims strides) {
  type_of(x, "slice");
  return bind_slice(std::move(x.value), start, limit, strides, x.source);
}

Array dynamic_slice(Operand x, const std::vector<Array>& starts, Shape sizes) {
  type_of(x, "dynamic_slice");
  return bind_dynamic_slice(std::move(x.value), starts, sizes, x.source);
}

namespace {
std::size_t checked_axis(const Operand& x, int axis, const char* what) {
  const int rank = type_of(x, what).rank();
  return static_cast<std::size_t>(
      at_source(x.source, [&] { return normalize_dim(axis, rank, what); }));
}

// Removes dim `dim`, of one item, from x.
Array without_dim(Array x, std::size_t dim, SourceLine source) {
  const Shape shape = x.shape();
  Shape rest;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (d != dim) rest.push_back(shape[d]);
  return bind_reshape(std::move(x), rest, source);
}
}  // namespace

Array index_in_dim(Operand x, std::int64_t index, int axis, bool keepdims) {
  const FunctionScope scope("index_in_dim", {&x.value}, x.source);
  const std::size_t dim = checked_axis(x, axis, "index_in_dim");
  const std::int64_t extent = x.value.shape()[dim], at = index < 0 ? index + extent : index;
  if (at < 0 || at >= extent) {
    throw ValueError("index_in_dim: index " + std::to_string(index) + " in dim " +
                     std::to_string(dim) + " of an array of type " + to_string(x.value.type()) +
                     (extent == 0 ? ", which has no elements"
                                  : ": wanted an index from " + std::to_string(-extent) + " to " +
                                        std::to_string(extent - 1)) +
                     at_line(x.source));
  }
  const SourceLine source = x.source;
  Array item = slice_in_dim(std::move(x), at, at + 1, 1, static_cast<int>(dim));
  return keepdims ? item : without_dim(std::move(item), dim, source);
}

Array dynamic_index_in_dim(Operand x, Operand index, int axis, bool keepdims) {
  const FunctionScope scope("dynamic_index_in_dim", {&x.value, &index.value}, x.source);
  const std::size_t dim = checked_axis(x, axis, "dynamic_index_in_dim");
  const ShapedArray type = type_of(x, "dynamic_index_in_dim");
  if (type.dims()[dim] == 0) {
    throw ValueError("dynamic_index_in_dim: dim " + std::to_string(dim) + " of an array of type " +
                     to_string(type) + " has no elements" + at_line(x.source));
  }
  std::vector<Array> starts(type.dims().size(), Array(0));
  starts[dim] = index.value;
  Shape sizes = type.dims();
  sizes[dim] = 1;
  Array item = bind_dynamic_slice(std::move(x.value), starts, sizes, x.source);
  return keepdims ? item : without_dim(std::move(item), dim, x.source);
}

Array dynamic_update_slice(Operand x, Operand update, const std::vector<Array>& starts) {
  const ShapedArray& type = type_of(x, "dynamic_update_slice");
  const ShapedArray& update_type = type_of(update, "dynamic_update_slice");
  if (update_type.weak() && update_type.dtype() != type.dtype())
    update.value = convert_operand(std::move(update.value), type.dtype(), "dynamic_update_slice",
                                   update.source);
  std::vector<Array> in{std::move(x.value), std::move(update.value)};
  in.insert(in.end(), starts.begin(), starts.end());
  return shmap::bind(dynamic_update_slice_p, in, no_params, x.source);
}

Array slice_in_dim(Operand x, std::int64_t start, std::int64_t limit, std::int64_t stride,
                   int axis) {
  const std::size_t dim = checked_axis(x, axis, "slice_in_dim");
  const Shape shape = x.value.shape();
  Dims first, last, strides;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto from_end = [&](std::int64_t at) { return at < 0 ? at + shape[d] : at; };
    first.push_back(d == dim ? from_end(start) : 0);
    last.push_back(d == dim ? from_end(limit) : shape[d]);
    strides.push_back(d == dim ? stride : 1);
  }
  return bind_slice(std::move(x.value), first, last, strides, x.source);
}

Array dynamic_slice_in_dim(Operand x, Operand start, std::int64_t size, int axis) {
  const FunctionScope scope("dynamic_slice_in_dim", {&x.value, &start.value}, x.source);
  const std::size_t dim = checked_axis(x, axis, "dynamic_slice_in_dim");
  Shape sizes = x.value.shape();
  std::vector<Array> starts(sizes.size(), Array(0));
  starts[dim] = start.value;
  sizes[dim] = size;
  return bind_dynamic_slice(std::move(x.value), starts, sizes, x.source);
}

Array dynamic_update_slice_in_dim(Operand x, Operand update, Operand start, int axis) {
  const FunctionScope scope("dynamic_update_slice_in_dim", {&x.value, &update.value, &start.value},
                            x.source);
  const std::size_t dim = checked_axis(x, axis, "dynamic_update_slice_in_dim");
  std::vector<Array> starts(x.value.shape().size(), Array(0));
  starts[dim] = start.value;
  return dynamic_update_slice(std::move(x), std::move(update), starts);
}

Array dynamic_update_index_in_dim(Operand x, Operand update, Operand index, int axis) {
  const FunctionScope scope("dynamic_update_index_in_dim", {&x.value, &update.value, &index.value},
                            x.source);
  const std::size_t dim = checked_axis(x, axis, "dynamic_update_index_in_dim");
  const ShapedArray& type = type_of(x, "dynamic_update_index_in_dim");
  const ShapedArray& update_type = type_of(update, "dynamic_update_index_in_dim");
  if (update_type.rank() != type.rank() && update_type.rank() + 1 != type.rank()) {
    throw ValueError("dynamic_update_index_in_dim: an update of type " + to_string(update_type) +
                     " of an array of type " + to_string(type) + ": wanted one of rank " +
                     std::to_string(type.rank()) + ", or of rank " +
                     std::to_string(type.rank() - 1) + ", without dim " + std::to_string(dim) +
                     at_line(x.source));
  }
  if (update_type.rank() != type.rank()) {
    Shape shape;
    for (std::size_t d = 0; d < type.dims().size(); ++d)
      shape.push_back(d == dim ? 1 : update_type.dims()[d < dim ? d : d - 1]);
    update.value = bind_reshape(std::move(update.value), shape, update.source);
  }
  return dynamic_update_slice_in_dim(std::move(x), std::move(update), std::move(index),
                                     static_cast<int>(dim));
}

}  // namespace shmap
