// Batching of the primitives that change the shape or order of elements.
#include "core/ops/batch_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"

namespace shmap {

// The batch dimension stays behind the dim that precedes it in the operand.
void batch_broadcast(BatchCall& call) {
  const auto& p = params_as<BroadcastParams>(call.params);
  const auto from = static_cast<std::size_t>(call.dims[0]);
  const int at = from == 0 ? 0 : static_cast<int>(p.dims[from - 1]) + 1;
  BroadcastParams params;
  params.shape = with_extent(p.shape, at, call.size);
  for (std::size_t d = 0; d <= p.dims.size(); ++d) {
    if (d == from) params.dims.push_back(at);
    if (d < p.dims.size()) params.dims.push_back(past(p.dims[d], at));
  }
  give(call, call.in[0], params, at);
}

void batch_reshape(BatchCall& call) {
  ReshapeParams params;
  params.new_sizes = with_extent(params_as<ReshapeParams>(call.params).new_sizes, 0, call.size);
  give(call, with_batch_dim(call, 0, 0), params, 0);
}

void batch_transpose(BatchCall& call) {
  TransposeParams params;
  params.permutation.push_back(call.dims[0]);
  for (std::int64_t d : params_as<TransposeParams>(call.params).permutation)
    params.permutation.push_back(past(d, call.dims[0]));
  give(call, call.in[0], params, 0);
}

void batch_rev(BatchCall& call) {
  RevParams params;
  for (std::int64_t d : params_as<RevParams>(call.params).dimensions)
    params.dimensions.push_back(past(d, call.dims[0]));
  give(call, call.in[0], params, call.dims[0]);
}

void batch_concatenate(BatchCall& call) {
  int dim = 0;
  for (std::size_t i = call.in.size(); i-- > 0;)
    if (call.is_batched(i)) dim = call.dims[i];
  std::vector<Array> in;
  for (std::size_t i = 0; i < call.in.size(); ++i) in.push_back(with_batch_dim(call, i, dim));
  ConcatenateParams params;
  params.dimension = past(params_as<ConcatenateParams>(call.params).dimension, dim);
  give(call, in, params, dim);
}

namespace {

IntList with_zero(const IntList& widths, std::size_t at) {
  IntList out;
  for (std::size_t d = 0; d <= widths.size(); ++d) {
    if (d == at) out.push_back(0);
    if (d < widths.size()) out.push_back(widths[d]);
  }
  return out;
}

PadParams padded_beside(const PadParams& p, int dim) {
  const auto at = static_cast<std::size_t>(dim);
  PadParams params;
  params.low = with_zero(p.low, at);
  params.high = with_zero(p.high, at);
  params.interior = with_zero(p.interior, at);
  return params;
}

}  // namespace

void batch_pad(BatchCall& call) {
  const auto& p = params_as<PadParams>(call.params);
  if (!call.is_batched(1)) {
    Array in[] = {call.in[0], call.in[1]};
    return give(call, in, padded_beside(p, call.dims[0]), call.dims[0]);
  }
  // The padding value differs between examples: pads with any value, and then selects the right
  // one.
  const SourceLine s = call.source;
  const DType dtype = node_of(call.in[0])->type.dtype();
  Array in[] = {with_batch_dim(call, 0, 0), scalar_of(dtype, 0, s)};
  give(call, in, padded_beside(p, 0), 0);
  const Shape shape = node_of(call.out[0])->type.dims();
  Array inside =
      bind_broadcast(convert(Array(true), DType::bool_, s), element_shape(call, 0), Dims(), s);
  Array mask = bind(pad_p, std::move(inside), convert(Array(false), DType::bool_, s), p, s);
  Array value = bind_broadcast(call.in[1], shape, Dims(0), s);
  Array choice[] = {repeat_along(std::move(mask), 0, call.size, s), std::move(value), call.out[0]};
  call.out[0] = bind(select_n_p, choice, no_params, s);
}

}  // namespace shmap
