#include "core/ops/reduce_rules.h"

#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/reduce.h"
#include "core/ops/rule_ops.h"
#include "core/ops/scan.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

Array reduce_over(const RuleOps& op, const Primitive& p, const Array& x, const Dims& axes) {
  return bind(p, x, ReduceParams(axes), op.source());
}

// For each element along a dim, the product of the elements before it (1 for the first).
Array product_before(const RuleOps& op, const Array& x, std::int64_t dim, bool from_end) {
  const Array products = bind(cumprod_p, x, ScanParams(dim, from_end), op.source());
  PadParams shift;
  for (int d = 0; d < node_of(x)->type.rank(); ++d) {
    const std::int64_t by = d == dim ? (from_end ? -1 : 1) : 0;
    shift.low.push_back(by);
    shift.high.push_back(-by);
    shift.interior.push_back(0);
  }
  return bind(pad_p, products, op.number(1, x), shift, op.source());
}

}  // namespace

// Reduces one dim after the other: the tangent of each factor is multiplied by the product of all
// other factors, which is computed without division and is therefore right for zeros too.
void jvp_reduce_prod(JvpCall& call) {
  call.run();
  const RuleOps op(call.source);
  const Dims& axes = params_as<ReduceParams>(call.params).axes;
  if (call.type(0).size() == 0) return;  // an empty product is the constant 1
  Array x = call.primals[0], t = call.tangents[0];
  for (std::size_t k = axes.size(); k-- > 0;) {
    const Dims dim{axes[k]};
    const Array others =
        op(mul_p, product_before(op, x, axes[k], false), product_before(op, x, axes[k], true));
    t = reduce_over(op, reduce_sum_p, op(mul_p, t, others), dim);
    if (k > 0) x = reduce_over(op, reduce_prod_p, x, dim);
  }
  call.tangents_out[0] = t;
}

// Elements that are equal to the result share its tangent. A NaN is equal to no element, so that a
// result of NaN has a tangent of NaN.
void jvp_reduce_max(JvpCall& call) {
  call.run();
  const RuleOps op(call.source);
  const ShapedArray& type = call.type(0);
  const Dims& axes = params_as<ReduceParams>(call.params).axes;
  if (type.size() == 0) return;  // the result is a constant
  const Array &x = call.primals[0], &t = call.tangents[0];
  const Array found = op(eq_p, x, op.spread(call.out[0], type.dims(), axes));
  const Array is_it = convert(found, type.dtype(), call.source);
  const Array count = reduce_over(op, reduce_sum_p, is_it, axes);
  const Array share = op(div_p, is_it, op.spread(count, type.dims(), axes));
  call.tangents_out[0] = reduce_over(op, reduce_sum_p, op(mul_p, t, share), axes);
}

void jvp_reduce_min(JvpCall& call) { jvp_reduce_max(call); }

void transpose_reduce_sum(TransposeCall& call) {
  const RuleOps op(call.source);
  call.out[0] = op.spread(call.cotangents[0], call.in_types[0].dims(),
                          params_as<ReduceParams>(call.params).axes);
}

}  // namespace shmap
