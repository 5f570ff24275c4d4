// Batching along dims: reductions, scans, sorts.
#include "core/ops/batch_rules.h"
#include "core/ops/reduce.h"
#include "core/ops/scan.h"
#include "core/ops/sort.h"

namespace shmap {

namespace {

// Converts dims of an element to dims of the operand with batch dimension `dim`; returns the batch
// dimension after these dims are removed.
int shift(Dims& axes, int dim) {
  int left = dim;
  for (std::int64_t& d : std::span(axes.size() ? &axes[0] : nullptr, axes.size())) {
    if (d < dim) --left;
    d = past(d, dim);
  }
  return left;
}

}  // namespace

void batch_reduce(BatchCall& call) {
  ReduceParams params(params_as<ReduceParams>(call.params));
  const int dim = shift(params.axes, call.dims[0]);
  give(call, call.in[0], params, dim);
}

void batch_arg_reduce(BatchCall& call) {
  ArgReduceParams params(params_as<ArgReduceParams>(call.params));
  const int dim = shift(params.axes, call.dims[0]);
  give(call, call.in[0], params, dim);
}

void batch_cumulative(BatchCall& call) {
  ScanParams params(params_as<ScanParams>(call.params));
  params.axis = past(params.axis, call.dims[0]);
  give(call, call.in[0], params, call.dims[0]);
}

void batch_sort(BatchCall& call) {
  int dim = 0;
  for (std::size_t i = call.in.size(); i-- > 0;)
    if (call.is_batched(i)) dim = call.dims[i];
  std::vector<Array> in;
  for (std::size_t i = 0; i < call.in.size(); ++i) in.push_back(with_batch_dim(call, i, dim));
  SortParams params(params_as<SortParams>(call.params));
  params.dimension = past(params.dimension, dim);
  give(call, in, params, dim);
}

void batch_top_k(BatchCall& call) {
  TopKParams params(params_as<TopKParams>(call.params));
  // top_k works along the last dim, so that the batch dimension must not be last.
  const int last = element_rank(call, 0);
  const int dim = call.dims[0] == last ? 0 : call.dims[0];
  params.axis = last;
  give(call, with_batch_dim(call, 0, dim), params, dim);
}

}  // namespace shmap
