#include "core/ops/call_slices.h"

#include <algorithm>

#include "core/base/contains.h"
#include "core/ops/scatter.h"

namespace shmap {

namespace {

// Sets what gather and scatter have in common: their first two operands are the array and the
// indices.
Slices slices_of(const KernelCall& call, bool clip, bool from_end) {
  Slices s;
  s.operand_shape = call.in_types[0].dims();
  s.indices_shape = call.in_types[1].dims();
  s.index_dtype = call.in_types[1].dtype();
  s.mode = clip ? IndexMode::clip : IndexMode::fill_or_drop;
  s.from_end = from_end;
  s.indices = call.in[1];
  return s;
}

}  // namespace

Slices slices_of_gather(const KernelCall& call, const GatherParams& p, const Shape& stacked) {
  Slices s = slices_of(call, p.mode == GatherMode::clip, p.from_end);
  s.dims = {p.offset_dims, p.collapsed_slice_dims, p.start_index_map, p.operand_batching_dims,
            p.start_indices_batching_dims};
  s.slice_sizes = p.slice_sizes;
  s.slices_shape = stacked;
  return s;
}

Slices slices_of_scatter(const KernelCall& call) {
  const auto& p = params_as<ScatterAddParams>(call.params);
  Slices s = slices_of(call, p.clip, p.from_end);
  s.dims = {p.update_window_dims, p.inserted_window_dims, p.scatter_dims_to_operand_dims,
            p.operand_batching_dims, p.scatter_indices_batching_dims};
  s.slices_shape = call.in_types[2].dims();
  std::size_t window = 0;
  for (std::int64_t d = 0; d < s.operand_shape.rank(); ++d) {
    const bool is_window =
        !contains(p.inserted_window_dims, d) && !contains(p.operand_batching_dims, d);
    s.slice_sizes.push_back(
        is_window ? s.slices_shape[static_cast<std::size_t>(p.update_window_dims[window++])] : 1);
  }
  return s;
}

}  // namespace shmap
