// `gather_reduce`: a gather and the reduction of its result in one equation, which does not store
// the gathered slices. Example: the mean of the rows of each bag of indices.
#pragma once
#include <utility>

#include "core/ops/gather_ops.h"

namespace shmap {

// Operands: the operands of the gather. The result is, bit for bit, `reduction` of the gather's
// result. The pass fuse_gathers creates it, in programs for the CPU.
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
  Dims axes;                   // dims of the gather's result, ascending
  // the types of the gather's result and of this result, without variance
  ShapedArray gathered, type;
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
