// The primitive that jit leaves in a program that is traced around it.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/jaxpr.h"

namespace shmap {

extern Primitive jit_p;  // JitParams: a program inside, called

// The batching rule (batch.cpp): the program inside is batched.
void batch_jit(BatchCall& call);

struct JitParams : ParamsOf<JitParams> {
  explicit JitParams(JaxprRef j) : jaxpr(std::move(j)) {}
  JaxprRef jaxpr;
  void visit(ParamVisitor& v) const override { v.value("jaxpr", *jaxpr); }
};

// The mesh that a program asks for, by its shard_maps and constraints, nested ones too; null where
// it asks for none. The first one of several.
const detail::MeshImpl* mesh_of(const Jaxpr& jaxpr);

}  // namespace shmap
