// with_sharding_constraint and device_put as equations of global programs.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/primitive.h"

namespace shmap {

// Both have ConstraintParams and the same rules; they differ in the name that a program prints.
extern Primitive sharding_constraint_p;
extern Primitive device_put_p;
inline bool is_sharding_constraint(const Primitive& p) {
  return &p == &sharding_constraint_p || &p == &device_put_p;
}

struct ConstraintParams : ParamsOf<ConstraintParams> {
  explicit ConstraintParams(const Sharding* s, const Sharding* f = nullptr)
      : sharding(s), from(f) {}
  const Sharding* sharding;
  // For a tangent: the sharding that the primal had before, to which the cotangent moves back if
  // that sharding is over another mesh. Null if the primal is traced or no user had placed it.
  const Sharding* from;
  void visit(ParamVisitor& v) const override;
  const detail::MeshImpl* mesh() const override { return sharding->mesh(); }
};

}  // namespace shmap
