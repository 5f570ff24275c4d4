// What rules are written with: ops on values whose types are known to fit.
#pragma once
#include "core/ir/rules.h"

namespace shmap {

class RuleOps {
 public:
  explicit RuleOps(SourceLine source) : source_(source) {}

  Array operator()(const Primitive& p, const Array& x) const {
    return bind(p, x, no_params, source_);
  }
  Array operator()(const Primitive& p, const Array& a, const Array& b) const {
    return bind(p, a, b, no_params, source_);
  }
  // A host number of x's dtype, for elementwise ops with x.
  Array number(double value, const Array& x) const;
  // Elementwise, where pred (bool) is true and where it is not.
  Array select(const Array& pred, const Array& on_true, const Array& on_false) const;
  // x, repeated to these dims where it is a scalar and they are not none.
  Array to_shape(const Array& x, const Shape& dims) const;
  // x, of which the dims `axes` were reduced, repeated along them to the shape `dims`.
  Array spread(const Array& x, const Shape& dims, const Dims& axes) const;

  SourceLine source() const { return source_; }

 private:
  SourceLine source_;
};

// 1 where a wins over b (`wins`: gt or lt), a half where they are equal, else 0; with NaNs 0. In
// the dtype of both.
Array winner_share(const RuleOps& op, const Primitive& wins, const Array& a, const Array& b);

// The TypeError for an equation of which two operands that are multiplied are both linear, or a
// divisor, a predicate is.
[[noreturn]] void throw_not_linear(const TransposeCall& call, const char* which);

}  // namespace shmap
