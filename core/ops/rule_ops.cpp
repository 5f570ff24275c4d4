#include "core/ops/rule_ops.h"

#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"

namespace shmap {

Array RuleOps::number(double value, const Array& x) const {
  return convert(Array(value), node_of(x)->type.dtype(), source_);
}

Array RuleOps::select(const Array& pred, const Array& on_true, const Array& on_false) const {
  Array in[3] = {pred, on_false, on_true};
  return bind(select_n_p, in, no_params, source_);
}

Array RuleOps::to_shape(const Array& x, const Shape& dims) const {
  return node_of(x)->type.rank() == 0 && !dims.empty() ? bind_broadcast(x, dims, {}, source_) : x;
}

Array RuleOps::spread(const Array& x, const Shape& dims, const Dims& axes) const {
  if (axes.empty()) return x;
  Dims kept;
  std::size_t next = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (next < axes.size() && axes[next] == static_cast<std::int64_t>(d)) {
      ++next;
    } else {
      kept.push_back(static_cast<std::int64_t>(d));
    }
  }
  return bind_broadcast(x, dims, kept, source_);
}

Array winner_share(const RuleOps& op, const Primitive& wins, const Array& a, const Array& b) {
  const Array tied = op.select(op(eq_p, a, b), op.number(0.5, a), op.number(0, a));
  return op.select(op(wins, a, b), op.number(1, a), tied);
}

void throw_not_linear(const TransposeCall& call, const char* which) {
  throw TypeError(std::string(call.primitive.name) + " cannot be transposed: " + which +
                  " depends on an argument in which the function has to be linear. For a "
                  "derivative use grad or jvp" +
                  at_line(call.source));
}

}  // namespace shmap
