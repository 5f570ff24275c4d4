// `gather_reduce`: the reduction of what a gather takes, which is never stored as a whole: the mean
// of the rows of each bag of indices.
#pragma once
#include <utility>

#include "core/ops/gather_ops.h"

namespace shmap {

// Operands: those of the gather. The result is bit for bit what `reduction` of the gather's result
// would give. Made by the pass fuse_gathers, of programs for the CPU.
extern Primitive gather_reduce_p;

struct GatherReduceParams : ParamsOf<GatherReduceParams> {
  GatherReduceParams(GatherParams g, const Primitive* r, const Dims& a, ShapedArray taken,
                     ShapedArray t)
      : gather(std::move(g)),
        reduction(r),
        axes(a),
        gathered(std::move(taken)),
        type(std::move(t)) {}
  GatherParams gather;
  const Primitive* reduction;  // reduce_sum_p or another reduction
  Dims axes;                   // of what is gathered, ascending
  ShapedArray gathered, type;  // of what is gathered and of the result, without variance
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
