// `concatenate_slices`: arrays joined along one dim, of some of which only a slice is taken, which
// is read where it lies: a roll, or the shifted rows of a stencil.
#pragma once
#include <utility>
#include <vector>

#include "core/ops/slicing.h"

namespace shmap {

// Operands: one array for each slice; an array may come several times. The result is what
// concatenate of these slices would give. Made by the pass join_slices, of programs for the CPU.
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
