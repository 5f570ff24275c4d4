// checkpoint as an equation: a program that stays in one piece, so that no pass finds what its
// derivative computes again to be what was computed before, until it is lowered.
#pragma once
#include "core/transforms/lowering/called_program.h"

namespace shmap {

extern Primitive checkpoint_p;
struct CheckpointParams : CalledParamsOf<CheckpointParams> {
  bool differentiated = false;  // it computes again what was computed before
  void visit(ParamVisitor& v) const override;
};

// Its operand, of which nothing is known: what is computed from it is not what is computed from the
// operand. A view.
extern Primitive optimization_barrier_p;
struct BarrierParams : ParamsOf<BarrierParams> {
  BarrierParams();  // no two are equal
  std::int64_t id;
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
