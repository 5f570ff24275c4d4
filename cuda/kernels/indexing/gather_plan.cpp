#include "cuda/kernels/indexing/gather_plan.h"

#include <algorithm>
#include <string>

#include "core/base/contains.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

void row_major(const Shape& shape, int rank, std::int64_t* stride) {
  std::int64_t next = 1;
  for (int d = rank - 1; d >= 0; --d) {
    stride[d] = next;
    next *= shape[static_cast<std::size_t>(d)];
  }
}

}  // namespace

SlicePlan::SlicePlan(const Slices& s) {
  if (!is_integer(s.index_dtype)) {
    throw TypeError("gather, scatter: indices are " + to_string(s.index_dtype) +
                    ": an integer type is wanted");
  }
  const int operand_rank = s.operand_shape.rank(), batch_rank = s.indices_shape.rank() - 1;
  std::int64_t operand_stride[kMaxRank], row_stride[kMaxRank], slices_stride[kMaxRank];
  row_major(s.operand_shape, operand_rank, operand_stride);
  row_major(s.indices_shape, batch_rank, row_stride);
  row_major(s.slices_shape, s.slices_shape.rank(), slices_stride);

  starts.indices = s.indices;
  starts.dtype = static_cast<std::int64_t>(s.index_dtype);
  starts.clip = s.mode == IndexMode::clip ? 1 : 0;
  starts.size = static_cast<std::int64_t>(s.dims.start_index_map.size());
  bool moving[kMaxRank] = {};  // operand dims along which slices may begin at several positions
  for (std::int64_t k = 0; k < starts.size; ++k) {
    const std::int64_t d = s.dims.start_index_map[static_cast<std::size_t>(k)];
    const auto i = static_cast<std::size_t>(d);
    starts.last[k] = s.operand_shape[i] - s.slice_sizes[i];
    starts.stride[k] = operand_stride[d];
    starts.from_end[k] = s.from_end ? s.operand_shape[i] : 0;
    moving[d] = starts.last[k] != 0;
  }

  rank = s.slices_shape.rank();
  int window = 0, batch = 0;
  for (int d = 0; d < rank; ++d) {
    SlicePlanDim& to = dim[d];
    to = {s.slices_shape[static_cast<std::size_t>(d)], 0, 0, slices_stride[d], false, true};
    if (contains(s.dims.offset_dims, d)) {
      while (contains(s.dims.collapsed_slice_dims, window) ||
             contains(s.dims.operand_batching_dims, window))
        ++window;
      to.operand_stride = operand_stride[window];
      to.window = true;
      to.moves = moving[window++];
      continue;
    }
    to.row_stride = row_stride[batch];
    for (std::size_t b = 0; b < s.dims.indices_batching_dims.size(); ++b)
      if (s.dims.indices_batching_dims[b] == batch)
        to.operand_stride += operand_stride[s.dims.operand_batching_dims[b]];
    ++batch;
  }
}

}  // namespace shmap::cuda
