// Slices of arrays at static and at computed positions.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

extern Primitive slice_p;                 // a view where the part is contiguous
extern Primitive dynamic_slice_p;         // operand, then a start for each dim
extern Primitive dynamic_update_slice_p;  // operand, update, then a start for each dim

struct SliceParams : ParamsOf<SliceParams> {
  Dims start_indices, limit_indices, strides;  // one entry per dim; strides are 1 or more
  void visit(ParamVisitor& v) const override {
    v.value("limit_indices", limit_indices);
    v.value("start_indices", start_indices);
    v.value("strides", strides);
  }
};
// The number of items of [start, limit) in steps of `step`, which may be any number from 1 on.
inline std::int64_t items_in_steps(std::int64_t start, std::int64_t limit, std::int64_t step) {
  return start < limit ? (limit - start - 1) / step + 1 : 0;
}
// Starts are integer scalars of any dtype. To a negative start the extent is added once; then it is
// clamped so that the part is in range.
struct DynamicSliceParams : ParamsOf<DynamicSliceParams> {
  Shape slice_sizes;
  void visit(ParamVisitor& v) const override { v.value("slice_sizes", slice_sizes); }
};

// The start of a slice of `size` items, wrapped and clamped.
inline std::int64_t clamp_start(std::int64_t start, std::int64_t extent, std::int64_t size) {
  if (start < 0) start += extent;
  const std::int64_t last = extent - size;
  return start < 0 ? 0 : start > last ? last : start;
}

Array bind_slice(Array x, const Dims& start, const Dims& limit, const Dims& strides,
                 SourceLine source);
// Items [start, limit) along one dim.
Array slice_dim(Array x, int dim, std::int64_t start, std::int64_t limit, SourceLine source);
// One start per dim. A static slice where all starts are host scalars.
Array bind_dynamic_slice(Array x, std::span<const Array> starts, const Shape& sizes,
                         SourceLine source);

}  // namespace shmap
