// The primitives that jit leaves in a program that is traced around it.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/jaxpr.h"

namespace shmap {

extern Primitive jit_p;                  // JitParams: a program inside, called
extern Primitive sharding_constraint_p;  // ConstraintParams

// For many at a time (jit_batch.cpp): a program of many; and a constraint under which the new dim
// is not split.
void batch_jit(BatchCall& call);
void batch_constraint(BatchCall& call);

struct JitParams : ParamsOf<JitParams> {
  explicit JitParams(JaxprRef j) : jaxpr(std::move(j)) {}
  JaxprRef jaxpr;
  void visit(ParamVisitor& v) const override { v.value("jaxpr", *jaxpr); }
};

struct ConstraintParams : ParamsOf<ConstraintParams> {
  explicit ConstraintParams(const Sharding* s) : sharding(s) {}
  const Sharding* sharding;
  void visit(ParamVisitor& v) const override;
  const detail::MeshImpl* mesh() const override { return sharding->mesh(); }
};

// The mesh that a program asks for, by its shard_maps and constraints, nested ones too; null where
// it asks for none. The first one of several.
const detail::MeshImpl* mesh_of(const Jaxpr& jaxpr);

}  // namespace shmap
