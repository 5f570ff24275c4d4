// `placed_slice`: a contiguous slice of an array, at an offset that the host knows for each device
// before the program runs. Nothing is copied: the result is a view.
#pragma once
#include <cstdint>
#include <vector>

#include "core/ir/primitive.h"

namespace shmap {

// Created by the pass place_slices.
extern Primitive placed_slice_p;

struct PlacedSliceParams : ParamsOf<PlacedSliceParams> {
  Shape sizes;
  // The offset of the slice's first element, in elements: one for each local device of the mesh, or
  // one for all.
  std::vector<std::int64_t> offsets;
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
