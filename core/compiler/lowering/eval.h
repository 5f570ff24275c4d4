// Eager evaluation outside of every transform: operations on concrete arrays, on one device or
// sharded over a mesh.
#pragma once
#include "core/ir/trace.h"

namespace shmap {

class EvalTrace final : public Trace {
 public:
  EvalTrace() : Trace("eager") {}
  void process(const Primitive& primitive, std::span<Array> in, const Params& params,
               std::span<Array> out, SourceLine source) override;
};

}  // namespace shmap
