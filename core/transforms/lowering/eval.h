// Eager interpretation outside every transform: ops on concrete arrays, on one device or sharded
// over a mesh.
#pragma once
#include "core/ir/sharding_rule.h"
#include "core/ir/trace.h"

namespace shmap {

class EvalTrace final : public Trace {
 public:
  EvalTrace() : Trace("eager") {}
  void process(const Primitive& primitive, std::span<Array> in, const Params& params,
               std::span<Array> out, SourceLine source) override;
};

// Makes a value whole that is partial over some axes of its mesh; set by the collectives'
// registration. `x` has, on every device, one partial block; the result has the same on all of
// them.
using CombinePartialFn = Array (*)(const Array& x, const std::vector<int>& axes, FactorKind kind,
                                   SourceLine source);
void set_combine_partial(CombinePartialFn fn);

}  // namespace shmap
