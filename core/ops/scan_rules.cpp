#include "core/ops/scan_rules.h"

#include <limits>

#include "core/ops/elementwise.h"
#include "core/ops/rule_ops.h"
#include "core/ops/scan.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"

namespace shmap {

namespace {

// A value with its tangent.
struct Dual {
  Array x, t;
};
using CombineFn = Dual (*)(const RuleOps& op, const Dual& a, const Dual& b);

class Tree {
 public:
  Tree(CombineFn combine, std::int64_t dim, SourceLine source)
      : op_(source), combine_(combine), dim_(static_cast<std::size_t>(dim)) {}

  // Computes the cumulative results. Those at odd positions are the cumulative results of combined
  // pairs of neighbours (recursion); those at even positions combine one of these with the next
  // element.
  Dual scan(const Dual& in) const {
    const std::int64_t n = node_of(in.x)->type.dims()[dim_];
    if (n < 2) return in;
    const Dual odd = scan(combine_(op_, every_other(in, 0, n - 1), every_other(in, 1, n)));
    const Dual first = part(in, 0, 1, 1);
    if (n == 2) return {interleave(first.x, odd.x), interleave(first.t, odd.t)};
    const Dual rest = combine_(op_, part(odd, 0, (n - 1) / 2, 1), every_other(in, 2, n));
    return {interleave(join(first.x, rest.x), odd.x), interleave(join(first.t, rest.t), odd.t)};
  }

 private:
  Array part(const Array& x, std::int64_t begin, std::int64_t end, std::int64_t stride) const {
    const Shape& dims = node_of(x)->type.dims();
    Dims start, limit, strides;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      start.push_back(d == dim_ ? begin : 0);
      limit.push_back(d == dim_ ? end : dims[d]);
      strides.push_back(d == dim_ ? stride : 1);
    }
    return bind_slice(x, start, limit, strides, op_.source());
  }
  Dual part(const Dual& in, std::int64_t begin, std::int64_t end, std::int64_t stride) const {
    return {part(in.x, begin, end, stride), part(in.t, begin, end, stride)};
  }
  Dual every_other(const Dual& in, std::int64_t begin, std::int64_t end) const {
    return part(in, begin, end, 2);
  }
  Array join(const Array& a, const Array& b) const {
    Array both[2] = {a, b};
    return bind_concatenate(both, static_cast<int>(dim_), op_.source());
  }
  // Interleaves even[0], odd[0], even[1] …; `even` has as many elements as `odd`, or one more.
  Array interleave(const Array& even, const Array& odd) const {
    const std::int64_t more = node_of(even)->type.dims()[dim_] - node_of(odd)->type.dims()[dim_];
    return op_(add_p, with_gaps(even, 0, 1 - more), with_gaps(odd, 1, more));
  }
  Array with_gaps(const Array& x, std::int64_t low, std::int64_t high) const {
    PadParams p;
    for (std::size_t d = 0; d < node_of(x)->type.dims().size(); ++d) {
      p.low.push_back(d == dim_ ? low : 0);
      p.high.push_back(d == dim_ ? high : 0);
      p.interior.push_back(d == dim_ ? 1 : 0);
    }
    return bind(pad_p, x, op_.number(0, x), p, op_.source());
  }

  RuleOps op_;
  CombineFn combine_;
  std::size_t dim_;
};

// Computes the tangents by the tree; its primal results, which differ from the primitive's by
// rounding, are dropped.
void jvp_cumulative(JvpCall& call, CombineFn combine) {
  call.run();
  const auto& p = params_as<ScanParams>(call.params);
  const auto turned = [&](const Array& x) {
    if (!p.reverse) return x;
    RevParams rev;
    rev.dimensions = Dims{p.axis};
    return bind(rev_p, x, rev, call.source);
  };
  const Tree tree(combine, p.axis, call.source);
  call.tangents_out[0] = turned(tree.scan({turned(call.primals[0]), turned(call.tangents[0])}).t);
}

// The tangent of a times the weight of a, plus the tangent of b times the weight of b.
Array weighted(const RuleOps& op, const Dual& a, const Array& wa, const Dual& b, const Array& wb) {
  return op(add_p, op(mul_p, a.t, wa), op(mul_p, b.t, wb));
}

Dual combine_prod(const RuleOps& op, const Dual& a, const Dual& b) {
  return {op(mul_p, a.x, b.x), weighted(op, a, b.x, b, a.x)};
}

Dual combine_extremum(const RuleOps& op, const Dual& a, const Dual& b, const Primitive& extremum,
                      const Primitive& wins) {
  return {op(extremum, a.x, b.x),
          weighted(op, a, winner_share(op, wins, a.x, b.x), b, winner_share(op, wins, b.x, a.x))};
}
Dual combine_max(const RuleOps& op, const Dual& a, const Dual& b) {
  return combine_extremum(op, a, b, max_p, gt_p);
}
Dual combine_min(const RuleOps& op, const Dual& a, const Dual& b) {
  return combine_extremum(op, a, b, min_p, lt_p);
}

// log(e^a + e^b), with the larger of the two taken out as a constant: max and abs, written in its
// place, would give second derivatives of their own where a and b are equal. The weights are the
// shares of e^a and e^b in the sum. Where both are -inf, the weights are 0; the weight of inf is 1.
Dual combine_logsumexp(const RuleOps& op, const Dual& a, const Dual& b) {
  const Array zero = op.number(0, a.x), one = op.number(1, a.x);
  const Array larger = op(stop_gradient_p, op(max_p, a.x, b.x));
  const Array is_finite = op(is_finite_p, larger);
  const Array m = op.select(is_finite, larger, zero);
  // At least e^0; 1 where the larger is infinite or NaN, so that neither log nor its derivatives
  // meet infinity there.
  const Array powers = op.select(
      is_finite, op(add_p, op(exp_p, op(sub_p, a.x, m)), op(exp_p, op(sub_p, b.x, m))), one);
  const Array y = op.select(is_finite, op(add_p, m, op(log_p, powers)), op(max_p, a.x, b.x));
  const Array shift = op.select(op(is_finite_p, y), y, zero);
  const Array inf = op.number(std::numeric_limits<double>::infinity(), y);
  const auto weight = [&](const Array& x) {
    return op(exp_p, op(sub_p, op.select(op(eq_p, x, inf), zero, x), shift));
  };
  return {y, weighted(op, a, weight(a.x), b, weight(b.x))};
}

}  // namespace

void jvp_cumprod(JvpCall& call) { jvp_cumulative(call, combine_prod); }
void jvp_cummax(JvpCall& call) { jvp_cumulative(call, combine_max); }
void jvp_cummin(JvpCall& call) { jvp_cumulative(call, combine_min); }
void jvp_cumlogsumexp(JvpCall& call) { jvp_cumulative(call, combine_logsumexp); }

void transpose_cumsum(TransposeCall& call) {
  const auto& p = params_as<ScanParams>(call.params);
  call.out[0] = bind(cumsum_p, call.cotangents[0], ScanParams(p.axis, !p.reverse), call.source);
}

}  // namespace shmap
