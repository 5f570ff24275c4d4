// The cast of variance: a value that is the same over some mesh axes becomes one that may differ.
// Traces insert it where operands vary unlike, so the primitive belongs to the type system, as
// pvary_p does in jax/_src/core.py; its rules stand beside its transpose, in collectives/psum.cpp.
#pragma once
#include <utility>
#include <vector>

#include "core/ir/primitive.h"
#include "shmap/axes.h"

namespace shmap {

// Of the collectives over axes that have no other parameters. Groups are lists of ranks over these
// axes, empty where all ranks form one group, as in pbroadcast.
struct AxesParams : ParamsOf<AxesParams> {
  explicit AxesParams(Axes a, std::vector<std::vector<int>> g = {})
      : axes(std::move(a)), groups(std::move(g)) {}
  Axes axes;
  std::vector<std::vector<int>> groups;
  void visit(ParamVisitor& v) const override;
};

extern Primitive pbroadcast_p;  // AxesParams

}  // namespace shmap
