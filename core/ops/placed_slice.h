// `placed_slice`: a contiguous part of an array, at a place that the host knows for each device
// before the program runs. Nothing is copied: the result is a view.
#pragma once
#include <cstdint>
#include <vector>

#include "core/ir/primitive.h"

namespace shmap {

// The pass place_slices makes it.
extern Primitive placed_slice_p;

struct PlacedSliceParams : ParamsOf<PlacedSliceParams> {
  Shape sizes;
  // Of the part's first element, in elements: for each local device of the mesh, or one for all.
  std::vector<std::int64_t> offsets;
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
