// `concatenate_slices`: joins slices of arrays along one dim without copying the slices first, as
// in a roll or for the shifted rows of a stencil.
#pragma once
#include <utility>
#include <vector>

#include "core/ops/slicing.h"

namespace shmap {

// Operands: one array for each slice; an array may occur several times. The result is the
// concatenation of the slices. The pass join_slices creates it, in programs for the CPU.
extern Primitive concatenate_slices_p;

struct ConcatenateSlicesParams : ParamsOf<ConcatenateSlicesParams> {
  ConcatenateSlicesParams(std::int64_t along, std::vector<SliceParams> taken, ShapedArray t)
      : dimension(along), slices(std::move(taken)), type(std::move(t)) {}
  std::int64_t dimension;
  std::vector<SliceParams> slices;  // one for each operand: within its extents, and not empty
  ShapedArray type;                 // of the result, without variance
  void visit(ParamVisitor& v) const override;
};

// The extents of a slice.
Shape slice_extents(const SliceParams& slice);

}  // namespace shmap
