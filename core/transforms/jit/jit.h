// The primitive that jit leaves in a program that is traced around it.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/jaxpr.h"

namespace shmap {

extern Primitive jit_p;  // JitParams: a program inside, called

// The batching rule (batch.cpp): the program inside is batched.
void batch_jit(BatchCall& call);

struct JitParams : ParamsOf<JitParams> {
  explicit JitParams(JaxprRef j, const detail::MeshImpl* m = nullptr)
      : jaxpr(std::move(j)), over(m) {}
  JaxprRef jaxpr;
  // The mesh that the program was asked to be split over (shmap/partitioned_jit.h), which may be
  // abstract; null where nobody asked.
  const detail::MeshImpl* over;
  void visit(ParamVisitor& v) const override;
  const detail::MeshImpl* mesh() const override { return over; }
};

// The mesh that a program asks for, by its shard_maps and constraints, nested ones too; null where
// it asks for none. The first one of several.
const detail::MeshImpl* mesh_of(const Jaxpr& jaxpr);

}  // namespace shmap
