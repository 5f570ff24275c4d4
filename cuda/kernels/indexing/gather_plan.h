// The position in the operand of each item of a gather's output, or of a scatter's updates.
#pragma once
#include <cstdint>

#include "cuda/kernels/indexing/gather.h"
#include "cuda/kernels/indexing/index_read.h"

namespace shmap::cuda {

// A dim of the slices: the strides of one step along it, in the operand and in rows of the indices.
struct SlicePlanDim {
  std::int64_t extent, operand_stride, row_stride;
  std::int64_t slices_stride;
  bool window;  // a dim of the slice, not of the batch
  bool moves;   // an index vector decides the position along it
};

// The starts in the index vectors.
struct SliceStarts {
  const void* indices = nullptr;
  std::int64_t dtype = 0, clip = 0;
  std::int64_t size = 0;  // entries of an index vector
  std::int64_t last[kMaxRank] = {}, stride[kMaxRank] = {};
  std::int64_t from_end[kMaxRank] = {};  // what is added to a negative index

  // Adds the offset of the slices of a row to `offset`; false where they are out of bounds.
  SHMAP_FN bool add(std::int64_t row, std::int64_t& offset) const {
    bool inside = true;
    for (std::int64_t k = 0; k < size; ++k) {
      std::int64_t start = read_index(indices, static_cast<DType>(dtype), row * size + k);
      if (start < 0) start += from_end[k];
      if (clip != 0)
        start = start < 0 ? 0 : start > last[k] ? last[k] : start;
      else
        inside = inside && start >= 0 && start <= last[k];
      offset += start * stride[k];
    }
    return inside;
  }
};

// All dims of the slices, and the starts; strides in items.
struct SlicePlan {
  int rank = 0;
  SlicePlanDim dim[kMaxRank];
  SliceStarts starts;

  explicit SlicePlan(const Slices& s);
};

}  // namespace shmap::cuda
