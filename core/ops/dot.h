// dot_general: lax's contraction of two operands over pairs of dims, with pairs of batch dims. The
// result's dims are the batch dims, then the other dims of lhs, then the other dims of rhs.
#pragma once
#include <optional>

#include "core/ir/primitive.h"

namespace shmap {

extern Primitive dot_general_p;

struct DotParams : ParamsOf<DotParams> {
  Dims lhs_contracting, rhs_contracting, lhs_batch, rhs_batch;
  // The result's dtype where it differs from the operands': f32 for bf16 and f16.
  std::optional<DType> preferred_element_type;
  void visit(ParamVisitor& v) const override;
};

// The dims of an operand that are neither contracted nor batch, in order.
Dims free_dims(int rank, const Dims& contracting, const Dims& batch);

Array bind_dot(Array a, Array b, const DotParams& params, SourceLine source);

}  // namespace shmap
