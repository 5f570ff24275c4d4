// `fused_columns`: a fused program whose full result is reduced along its columns while it is
// computed, and is never stored.
#pragma once
#include <memory>

#include "core/runtime/fused_program.h"

namespace shmap {

// Operands: the program's inputs that are not literals, in order. The result has one element per
// column: bit for bit what `reduction` of the program's only output would give.
extern Primitive fused_columns_p;

struct FusedColumnsParams : ParamsOf<FusedColumnsParams> {
  FusedColumnsParams(std::shared_ptr<const FusedProgram> p, const Primitive* r, ShapedArray t)
      : program(std::move(p)), reduction(r), type(std::move(t)) {}
  std::shared_ptr<const FusedProgram> program;  // one output, full
  const Primitive* reduction;                   // reduce_sum_p or another reduction
  ShapedArray type;                             // of the result, without variance
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
