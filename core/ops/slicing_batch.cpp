// Batching of slices at static and at computed positions, and of gather.
#include <limits>

#include "core/ops/batch_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather_ops.h"
#include "core/ops/promote.h"
#include "core/ops/scatter.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"

namespace shmap {

namespace {

Dims with_item(const Dims& dims, int at, std::int64_t item) {
  Dims out;
  for (std::size_t d = 0; d <= dims.size(); ++d) {
    if (static_cast<int>(d) == at) out.push_back(item);
    if (d < dims.size()) out.push_back(dims[d]);
  }
  return out;
}

Dims all_past_front(const Dims& dims) {
  Dims out;
  for (std::int64_t d : dims) out.push_back(d + 1);
  return out;
}

bool any_batched(const BatchCall& call, std::size_t first) {
  for (std::size_t i = first; i < call.in.size(); ++i)
    if (call.is_batched(i)) return true;
  return false;
}

// Starts that are not batched, with 0 inserted for the batch dimension.
std::vector<Array> starts_beside(const BatchCall& call, std::size_t first, int dim) {
  std::vector<Array> starts(call.in.begin() + static_cast<std::ptrdiff_t>(first), call.in.end());
  starts.insert(starts.begin() + dim, Array(0));
  return starts;
}

Array number(DType dtype, std::int64_t value, SourceLine s) {
  return convert(Array(value), dtype, s);
}

// The starts of each example, one array per dim, adjusted as the slicing primitives adjust them:
// wrapped once, then clamped so that the slice is in range.
std::vector<Array> inner_starts(const BatchCall& call, std::size_t first, const Shape& whole,
                                const Shape& part) {
  const SourceLine s = call.source;
  bool wide = false;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    const DType t = node_of(call.in[first + d])->type.dtype();
    wide = wide || itemsize(t) > 4 || t == DType::u32 ||
           whole[d] > std::numeric_limits<std::int32_t>::max();
  }
  const DType dtype = wide ? DType::i64 : DType::i32;
  std::vector<Array> starts;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    Array start = with_batch_dim(call, first + d, 0);
    const DType given = node_of(start)->type.dtype();
    if (given == DType::u64)
      start = bind(min_p, std::move(start), number(given, whole[d], s), no_params, s);
    start = convert(std::move(start), dtype, s);
    if (is_signed_int(given)) {
      const Array negative = bind(lt_p, start, number(dtype, 0, s), no_params, s);
      const Array from_end = bind(add_p, start, number(dtype, whole[d], s), no_params, s);
      Array choice[] = {negative, start, from_end};
      start = bind(select_n_p, choice, no_params, s);
    }
    Array inside[] = {number(dtype, 0, s), std::move(start), number(dtype, whole[d] - part[d], s)};
    starts.push_back(bind(clamp_p, inside, no_params, s));
  }
  return starts;
}

// x with an additional last dim of extent 1: index vectors of one entry.
Array as_index_vectors(Array x, SourceLine s) {
  const Shape& shape = node_of(x)->type.dims();
  const Shape vectors = with_extent(shape, shape.rank(), 1);
  return bind_reshape(std::move(x), vectors, s);
}

}  // namespace

void batch_slice(BatchCall& call) {
  const auto& p = params_as<SliceParams>(call.params);
  const int dim = call.dims[0];
  SliceParams params;
  params.start_indices = with_item(p.start_indices, dim, 0);
  params.limit_indices = with_item(p.limit_indices, dim, call.size);
  params.strides = with_item(p.strides, dim, 1);
  give(call, call.in[0], params, dim);
}

void batch_dynamic_slice(BatchCall& call) {
  const Shape& sizes = params_as<DynamicSliceParams>(call.params).slice_sizes;
  const SourceLine s = call.source;
  if (!any_batched(call, 1)) {
    std::vector<Array> in = starts_beside(call, 1, call.dims[0]);
    in.insert(in.begin(), call.in[0]);
    DynamicSliceParams params;
    params.slice_sizes = with_extent(sizes, call.dims[0], call.size);
    return give(call, in, params, call.dims[0]);
  }
  if (call.size == 0) return give_nothing(call);
  std::vector<Array> vectors;
  for (Array& start : inner_starts(call, 1, element_shape(call, 0), sizes))
    vectors.push_back(as_index_vectors(std::move(start), s));
  GatherParams params;
  params.slice_sizes = sizes;
  for (int d = 0; d < sizes.rank(); ++d) {
    params.offset_dims.push_back(d + 1);
    params.start_index_map.push_back(d);
  }
  Array operand = call.in[0];
  if (call.is_batched(0)) {
    operand = with_batch_dim(call, 0, 0);
    params.slice_sizes = with_extent(sizes, 0, 1);
    params.start_index_map = all_past_front(params.start_index_map);
    params.operand_batching_dims = params.start_indices_batching_dims = Dims(0);
  }
  call.out[0] = bind(gather_p, std::move(operand), bind_concatenate(vectors, 1, s), params, s);
  call.out_dims[0] = 0;
}

void batch_dynamic_update_slice(BatchCall& call) {
  const SourceLine s = call.source;
  const Shape whole = element_shape(call, 0), part = element_shape(call, 1);
  if (!any_batched(call, 2)) {
    const int dim = call.is_batched(0) ? call.dims[0] : call.dims[1];
    std::vector<Array> in = starts_beside(call, 2, dim);
    Array both[] = {with_batch_dim(call, 0, dim), with_batch_dim(call, 1, dim)};
    in.insert(in.begin(), both, both + 2);
    return give(call, in, call.params, dim);
  }
  if (call.size == 0) return give_nothing(call);
  if (part.num_elements() == 0) {
    call.out[0] = call.in[0];
    call.out_dims[0] = call.dims[0];
    return;
  }
  // Expands the update to the operand's extents, dim by dim: each position inside of the update
  // gets its item, other positions any item; the mask says which positions are inside.
  const Shape result = with_extent(whole, 0, call.size);
  const std::vector<Array> starts = inner_starts(call, 2, whole, part);
  Array update = with_batch_dim(call, 1, 0), mask;
  for (int d = 0; d < whole.rank(); ++d) {
    const std::int64_t extent = whole[static_cast<std::size_t>(d)];
    const std::int64_t given = part[static_cast<std::size_t>(d)];
    if (given == extent) continue;
    const Array& start = starts[static_cast<std::size_t>(d)];
    const DType dtype = node_of(start)->type.dtype();
    const Shape places = {call.size, extent};
    const Array at = bind(sub_p, bind_iota(dtype, places, 1, s),
                          bind_broadcast(start, places, Dims(0), s), no_params, s);
    const Array after = bind(ge_p, at, number(dtype, 0, s), no_params, s);
    const Array before = bind(lt_p, at, number(dtype, given, s), no_params, s);
    const Array inside =
        bind_broadcast(bind(bit_and_p, after, before, no_params, s), result, Dims({0, d + 1}), s);
    mask = mask.node() ? bind(bit_and_p, mask, inside, no_params, s) : inside;
    GatherParams params;
    params.slice_sizes = node_of(update)->type.dims();
    params.slice_sizes[0] = params.slice_sizes[static_cast<std::size_t>(d) + 1] = 1;
    params.collapsed_slice_dims = params.start_index_map = Dims(d + 1);
    params.operand_batching_dims = params.start_indices_batching_dims = Dims(0);
    for (int k = 0; k < whole.rank(); ++k)
      if (k != d) params.offset_dims.push_back(k + 1);
    update = bind(gather_p, std::move(update), as_index_vectors(at, s), params, s);
  }
  call.out_dims[0] = 0;
  if (!mask.node()) {  // the update covers the operand
    call.out[0] = std::move(update);
    return;
  }
  Array choice[] = {mask, with_batch_dim(call, 0, 0), update};
  call.out[0] = bind(select_n_p, choice, no_params, s);
}

void batch_gather(BatchCall& call) {
  GatherParams params(params_as<GatherParams>(call.params));
  const bool both = call.is_batched(0) && call.is_batched(1);
  if (both && call.size == 0) return give_nothing(call);
  // The batch dimension is the result's first dim.
  params.offset_dims = all_past_front(params.offset_dims);
  if (call.is_batched(0)) {
    params.slice_sizes = with_extent(params.slice_sizes, 0, both ? 1 : call.size);
    params.collapsed_slice_dims = all_past_front(params.collapsed_slice_dims);
    params.start_index_map = all_past_front(params.start_index_map);
    params.operand_batching_dims = all_past_front(params.operand_batching_dims);
    if (!both) params.offset_dims = with_item(params.offset_dims, 0, 0);
  }
  if (call.is_batched(1))
    params.start_indices_batching_dims = all_past_front(params.start_indices_batching_dims);
  if (both) {
    params.operand_batching_dims = with_item(params.operand_batching_dims, 0, 0);
    params.start_indices_batching_dims = with_item(params.start_indices_batching_dims, 0, 0);
  }
  Array in[] = {call.is_batched(0) ? with_batch_dim(call, 0, 0) : call.in[0],
                call.is_batched(1) ? with_batch_dim(call, 1, 0) : call.in[1]};
  give(call, in, params, 0);
}

void batch_scatter_add(BatchCall& call) {
  if (call.size == 0) return give_nothing(call);
  // The batch dimension is the result's first dim. Where the indices are not batched, it is a
  // window dim, which windows take whole.
  const bool whole = !call.is_batched(1);
  ScatterAddParams params(params_as<ScatterAddParams>(call.params));
  params.update_window_dims = all_past_front(params.update_window_dims);
  params.inserted_window_dims = all_past_front(params.inserted_window_dims);
  params.scatter_dims_to_operand_dims = all_past_front(params.scatter_dims_to_operand_dims);
  params.operand_batching_dims = all_past_front(params.operand_batching_dims);
  if (whole) {
    params.update_window_dims = with_item(params.update_window_dims, 0, 0);
  } else {
    params.operand_batching_dims = with_item(params.operand_batching_dims, 0, 0);
    params.scatter_indices_batching_dims =
        with_item(all_past_front(params.scatter_indices_batching_dims), 0, 0);
  }
  Array in[] = {with_batch_dim(call, 0, 0), whole ? call.in[1] : with_batch_dim(call, 1, 0),
                with_batch_dim(call, 2, 0)};
  give(call, in, params, 0);
}

}  // namespace shmap
