// Batching of products. Where both operands are batched, the batch dimension is a further batch dim
// of the product; where one is, it is a free dim of that operand (more rows, or more columns).
#include "core/ops/batch_rules.h"
#include "core/ops/dot.h"

namespace shmap {

namespace {

Dims shifted(const Dims& dims, int dim) {
  Dims out;
  for (std::int64_t d : dims) out.push_back(past(d, dim));
  return out;
}

Dims with_first(const Dims& dims, int first) {
  Dims out;
  out.push_back(first);
  for (std::int64_t d : dims) out.push_back(d);
  return out;
}

}  // namespace

void batch_dot(BatchCall& call) {
  DotParams params(params_as<DotParams>(call.params));
  const auto n_batch = static_cast<int>(params.lhs_batch.size());
  // The batch dimension's position in the result: after the free dims of operand i that precede its
  // batch dimension.
  const auto position = [&](std::size_t i, const Dims& contracting, const Dims& batch) {
    int at = 0;
    for (std::int64_t d : free_dims(element_rank(call, i), contracting, batch))
      if (d < call.dims[i]) ++at;
    return at;
  };
  int dim = 0;
  if (!call.is_batched(1)) {
    dim = n_batch + position(0, params.lhs_contracting, params.lhs_batch);
  } else if (!call.is_batched(0)) {
    const Dims left = free_dims(element_rank(call, 0), params.lhs_contracting, params.lhs_batch);
    dim = n_batch + static_cast<int>(left.size()) +
          position(1, params.rhs_contracting, params.rhs_batch);
  }
  if (call.is_batched(0)) {
    params.lhs_contracting = shifted(params.lhs_contracting, call.dims[0]);
    params.lhs_batch = shifted(params.lhs_batch, call.dims[0]);
  }
  if (call.is_batched(1)) {
    params.rhs_contracting = shifted(params.rhs_contracting, call.dims[1]);
    params.rhs_batch = shifted(params.rhs_batch, call.dims[1]);
  }
  if (call.is_batched(0) && call.is_batched(1)) {
    params.lhs_batch = with_first(params.lhs_batch, call.dims[0]);
    params.rhs_batch = with_first(params.rhs_batch, call.dims[1]);
  }
  Array in[] = {call.in[0], call.in[1]};
  give(call, in, params, dim);
}

}  // namespace shmap
