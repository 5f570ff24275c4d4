// Where a value of a global program is to be placed: with_sharding_constraint and device_put as
// equations.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/primitive.h"

namespace shmap {

// Both have ConstraintParams and the same rules; what a program prints is what its user wrote.
extern Primitive sharding_constraint_p;
extern Primitive device_put_p;

struct ConstraintParams : ParamsOf<ConstraintParams> {
  explicit ConstraintParams(const Sharding* s, const Sharding* f = nullptr)
      : sharding(s), from(f) {}
  const Sharding* sharding;
  // Of a tangent: where the primal had been placed, which its cotangent goes back to where that is
  // on another mesh. Null where it is not known, or where nobody had placed it.
  const Sharding* from;
  void visit(ParamVisitor& v) const override;
  const detail::MeshImpl* mesh() const override { return sharding->mesh(); }
};

}  // namespace shmap
