// Cumulative operations along one dim: result and operand have one shape.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

extern Primitive cumsum_p;  // integers (which wrap) and floats
extern Primitive cumprod_p;
extern Primitive cummax_p;  // bools and numbers; NaN from the first NaN on
extern Primitive cummin_p;
extern Primitive cumlogsumexp_p;  // floats

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
