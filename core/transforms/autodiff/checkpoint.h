// checkpoint as an equation with a program inside. The equation keeps the program in one piece
// until it is lowered, so that no pass merges what the derivative recomputes with the first
// computation (common subexpressions).
#pragma once
#include "core/compiler/lowering/called_program.h"

namespace shmap {

extern Primitive checkpoint_p;
struct CheckpointParams : CalledParamsOf<CheckpointParams> {
  bool differentiated = false;  // whether the program recomputes values for a derivative
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
