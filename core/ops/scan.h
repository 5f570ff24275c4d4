// Cumulative operations along one dim: result and operand have one shape.
#pragma once
#include "core/base/reduction_ops.h"
#include "core/ir/primitive.h"

namespace shmap {

// cumsum_p and the other rows of core/base/reduction_ops.h.
#define SHMAP_DECLARE(name, domain) extern Primitive name##_p;
SHMAP_CUMULATIVES(SHMAP_DECLARE)
#undef SHMAP_DECLARE

struct ScanParams : ParamsOf<ScanParams> {
  explicit ScanParams(std::int64_t dim, bool from_end = false) : axis(dim), reverse(from_end) {}
  std::int64_t axis;
  bool reverse;
  void visit(ParamVisitor& v) const override {
    v.value("axis", axis);
    v.value("reverse", reverse);
  }
};

}  // namespace shmap
