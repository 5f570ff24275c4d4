// Helpers for rules: operations on values whose types are known to fit.
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
  // A host scalar of x's dtype, for elementwise operations with x.
  Array number(double value, const Array& x) const;
  // Elementwise: on_true where pred (bool) is true, otherwise on_false.
  Array select(const Array& pred, const Array& on_true, const Array& on_false) const;
  // x; a scalar x is broadcast to these dims.
  Array to_shape(const Array& x, const Shape& dims) const;
  // x, the result of a reduction over `axes`, broadcast along these to the shape `dims`.
  Array spread(const Array& x, const Shape& dims, const Dims& axes) const;

  SourceLine source() const { return source_; }

 private:
  SourceLine source_;
};

// 1 where a wins over b (`wins`: gt or lt), one half where they are equal, otherwise 0, also for
// NaNs; in the operands' dtype.
Array winner_share(const RuleOps& op, const Primitive& wins, const Array& a, const Array& b);

// The TypeError for transposing an equation that is not linear: two factors are linear, or a
// divisor or predicate is. `which` names the operand.
[[noreturn]] void throw_not_linear(const TransposeCall& call, const char* which);

}  // namespace shmap
