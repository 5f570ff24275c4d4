// The cast of variance: makes a value that is invariant over some mesh axes one that may vary over
// them. Traces insert it where operands vary over different axes. The primitive is therefore part
// of the type system (as pvary_p in jax/_src/core.py); its rules are in collectives/psum.cpp,
// beside those of psum, its transpose.
#pragma once
#include <utility>
#include <vector>

#include "core/ir/primitive.h"
#include "shmap/axes.h"

namespace shmap {

// The parameters of collectives that have only axes and groups. groups: lists of ranks over these
// axes; empty where all ranks form one group, as in pbroadcast.
struct AxesParams : ParamsOf<AxesParams> {
  explicit AxesParams(Axes a, std::vector<std::vector<int>> g = {})
      : axes(std::move(a)), groups(std::move(g)) {}
  Axes axes;
  std::vector<std::vector<int>> groups;
  void visit(ParamVisitor& v) const override;
};

extern Primitive pbroadcast_p;  // AxesParams

}  // namespace shmap
