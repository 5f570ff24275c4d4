// The identity that keeps passes from merging operations (jax.lax.optimization_barrier).
#pragma once
#include <cstdint>

#include "core/ir/primitive.h"

namespace shmap {

// The identity, as a view. It hides its operand from passes, so that operations on its result are
// not merged with equal operations on its operand.
extern Primitive optimization_barrier_p;
struct BarrierParams : ParamsOf<BarrierParams> {
  BarrierParams();  // no two are equal, so that no two barriers are merged
  std::int64_t id;
  void visit(ParamVisitor& v) const override;
};

}  // namespace shmap
