// The primitive that calls a jitted function's program inside of another program.
#pragma once
#include "core/array/sharding.h"
#include "core/ir/jaxpr.h"

namespace shmap {

extern Primitive jit_p;  // JitParams: a program inside, called

struct JitParams : ParamsOf<JitParams> {
  explicit JitParams(JaxprRef j, const detail::MeshImpl* m = nullptr)
      : jaxpr(std::move(j)), over(m) {}
  JaxprRef jaxpr;
  // The mesh over which the user asked to split the program (shmap/partitioned_jit.h), which may be
  // abstract; null where the user gave none.
  const detail::MeshImpl* over;
  void visit(ParamVisitor& v) const override;
  const detail::MeshImpl* mesh() const override { return over; }
};

}  // namespace shmap
