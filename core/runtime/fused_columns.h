// `fused_columns`: a fused program whose full result is reduced along its columns as it is made,
// and never stored.
#pragma once
#include <memory>

#include "core/runtime/fused_program.h"

namespace shmap {

// Operands: the program's inputs that are no literals, in order. The result has an element for each
// column: what `reduction` of the program's one output would have given, to the last bit.
extern Primitive fused_columns_p;

struct FusedColumnsParams : ParamsOf<FusedColumnsParams> {
  FusedColumnsParams(std::shared_ptr<const FusedProgram> p, const Primitive* r, ShapedArray t)
      : program(std::move(p)), reduction(r), type(std::move(t)) {}
  std::shared_ptr<const FusedProgram> program;  // one output, full
  const Primitive* reduction;                   // reduce_sum_p or one of its kin
  ShapedArray type;                             // of the result; without axes
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
