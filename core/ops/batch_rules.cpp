#include "core/ops/batch_rules.h"

#include <algorithm>
#include <vector>

#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"

namespace shmap {

Shape with_extent(const Shape& shape, int at, std::int64_t extent) {
  Shape out;
  for (int d = 0; d <= shape.rank(); ++d) {
    if (d == at) out.push_back(extent);
    if (d < shape.rank()) out.push_back(shape[static_cast<std::size_t>(d)]);
  }
  return out;
}

Array move_dim(Array x, int from, int to, SourceLine source) {
  if (from == to) return x;
  Dims permutation;
  for (int d = 0; d < node_of(x)->type.rank(); ++d) {
    if (d == to && to < from) permutation.push_back(from);
    if (d != from) permutation.push_back(d);
    if (d == to && to > from) permutation.push_back(from);
  }
  return bind_transpose(std::move(x), permutation, source);
}

Array repeat_along(Array x, int at, std::int64_t size, SourceLine source) {
  const Shape shape = with_extent(node_of(x)->type.dims(), at, size);
  Dims dims;
  for (int d = 0; d < shape.rank(); ++d)
    if (d != at) dims.push_back(d);
  return bind_broadcast(std::move(x), shape, dims, source);
}

int element_rank(const BatchCall& call, std::size_t i) {
  return node_of(call.in[i])->type.rank() - (call.is_batched(i) ? 1 : 0);
}

Shape element_shape(const BatchCall& call, std::size_t i) {
  const Shape& shape = node_of(call.in[i])->type.dims();
  Shape out;
  for (int d = 0; d < shape.rank(); ++d)
    if (d != call.dims[i]) out.push_back(shape[static_cast<std::size_t>(d)]);
  return out;
}

Array with_batch_dim(const Array& x, int dim, int at, std::int64_t size, SourceLine source) {
  return dim < 0 ? repeat_along(x, at, size, source) : move_dim(x, dim, at, source);
}
Array with_batch_dim(const BatchCall& call, std::size_t i, int at) {
  return with_batch_dim(call.in[i], call.dims[i], at, call.size, call.source);
}

void give(BatchCall& call, std::span<Array> in, const Params& params, int dim) {
  current_trace().process(call.primitive, in, params, call.out, call.source);
  std::fill(call.out_dims.begin(), call.out_dims.end(), dim);
}

void give(BatchCall& call, Array x, const Params& params, int dim) {
  give(call, std::span<Array>(&x, 1), params, dim);
}

void give_nothing(BatchCall& call) {
  std::vector<ShapedArray> types;
  AxisSet axes;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const ShapedArray& type = node_of(call.in[i])->type;
    types.emplace_back(element_shape(call, i), type.dtype(), type.weak(), type.axes());
    axes = axes | type.axes();
  }
  ShapedArray one;
  call.primitive.abstract_eval(types, call.params, std::span(&one, 1));
  const Shape none = with_extent(one.dims(), 0, 0);
  call.out[0] = zeros_of(ShapedArray(none, one.dtype(), one.weak(), axes), call.source);
  call.out_dims[0] = 0;
}

void batch_elementwise(BatchCall& call) {
  // The result's batch dimension is that of the first operand of full rank.
  int rank = 0;
  for (std::size_t i = 0; i < call.in.size(); ++i) rank = std::max(rank, element_rank(call, i));
  int dim = 0;
  Shape shape;
  for (std::size_t i = call.in.size(); i-- > 0;) {
    if (element_rank(call, i) < rank) continue;
    shape = element_shape(call, i);
    if (call.is_batched(i)) dim = call.dims[i];
  }
  shape = with_extent(shape, dim, call.size);
  InlineVector<Array, 4> in(call.in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (element_rank(call, i) == rank && (rank > 0 || call.is_batched(i))) {
      in[i] = with_batch_dim(call, i, dim);
    } else if (call.is_batched(i)) {  // one scalar for each example
      in[i] = bind_broadcast(call.in[i], shape, Dims(dim), call.source);
    } else {
      in[i] = call.in[i];
    }
  }
  give(call, in, call.params, dim);
}

// The result has the shape of x, which therefore must be batched where only a bound is.
void batch_clamp(BatchCall& call) {
  if (call.is_batched(1)) return batch_elementwise(call);
  const Array in[] = {call.in[0], with_batch_dim(call, 1, 0), call.in[2]};
  const int dims[] = {call.dims[0], 0, call.dims[2]};
  BatchCall with_batch{call.primitive, call.params,   in,         dims, call.size,
                       call.out,       call.out_dims, call.source};
  batch_elementwise(with_batch);
}

void batch_in_place(BatchCall& call) { give(call, call.in[0], call.params, call.dims[0]); }

void batch_bitcast(BatchCall& call) {
  const auto& p = params_as<ConvertParams>(call.params);
  const ShapedArray& type = node_of(call.in[0])->type;
  // Casting to another width adds or removes the last dim, so that the batch dim must not be last.
  const bool last = call.dims[0] == type.rank() - 1;
  const int dim = last && itemsize(type.dtype()) != itemsize(p.new_dtype) ? 0 : call.dims[0];
  give(call, with_batch_dim(call, 0, dim), call.params, dim);
}

}  // namespace shmap
