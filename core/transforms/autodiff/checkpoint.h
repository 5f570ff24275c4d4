// checkpoint as an equation with a program inside. The equation keeps the program in one piece
// until it is lowered, so that no pass merges what the derivative recomputes with the first
// computation (common subexpressions).
#pragma once
#include "core/transforms/lowering/called_program.h"

namespace shmap {

extern Primitive checkpoint_p;
struct CheckpointParams : CalledParamsOf<CheckpointParams> {
  bool differentiated = false;  // whether the program recomputes values for a derivative
  void visit(ParamVisitor& v) const override;
};

// The identity, as a view. It hides its operand from passes, so that operations on its result are
// not merged with equal operations on its operand (jax.lax.optimization_barrier).
extern Primitive optimization_barrier_p;
struct BarrierParams : ParamsOf<BarrierParams> {
  BarrierParams();  // no two are equal, so that no two barriers are merged
  std::int64_t id;
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
