#include "core/ops/sort_rules.h"

#include "core/ops/gather_ops.h"
#include "core/ops/shape_params.h"
#include "core/ops/sort.h"

namespace shmap {

namespace {

// The elements of x at `indices` along dim `dim`; the other dims of x and of the indices are the
// same.
Array take_along_dim(const Array& x, const Array& indices, std::int64_t dim, SourceLine source) {
  GatherParams p;
  Shape vectors;
  for (int d = 0; d < node_of(x)->type.rank(); ++d) {
    p.slice_sizes.push_back(1);
    vectors.push_back(node_of(indices)->type.dims()[static_cast<std::size_t>(d)]);
    if (d == dim) continue;
    p.operand_batching_dims.push_back(d);
    p.start_indices_batching_dims.push_back(d);
  }
  vectors.push_back(1);
  p.collapsed_slice_dims.push_back(dim);
  p.start_index_map.push_back(dim);
  return bind(gather_p, x, bind_reshape(indices, vectors, source), p, source);
}

}  // namespace

// Sorts with an additional operand of indices, by which the tangents are then gathered.
void jvp_sort(JvpCall& call) {
  if (call.type(0).size() == 0) return call.run();
  const auto& p = params_as<SortParams>(call.params);
  const std::size_t n = call.primals.size();
  InlineVector<Array, 4> in(n + 1), out(n + 1);
  for (std::size_t i = 0; i < n; ++i) in[i] = call.primals[i];
  in[n] = bind_iota(DType::i32, call.type(0).dims(), static_cast<int>(p.dimension), call.source);
  current_trace().process(sort_p, in.span(), p, out.span(), call.source);
  for (std::size_t i = 0; i < n; ++i) {
    if (call.has_tangent(i))
      call.tangents_out[i] = take_along_dim(call.tangents[i], out[n], p.dimension, call.source);
    call.out[i] = std::move(out[i]);
  }
}

void jvp_top_k(JvpCall& call) {
  call.run();
  if (call.type(0).size() == 0) return;
  call.tangents_out[0] = take_along_dim(call.tangents[0], call.out[1],
                                        params_as<TopKParams>(call.params).axis, call.source);
}

}  // namespace shmap
