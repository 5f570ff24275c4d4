// The derivative of gamma samples with respect to their parameter: a program with loops.
#include "core/ops/gamma_sample.h"

#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/rule_ops.h"
#include "core/ops/shape_params.h"
#include "shmap/control_flow.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// The most trips of a loop; parameters up to kLarge need fewer.
constexpr double kMostTrips = 10000;
constexpr double kLarge = 1e6;

// digamma(a), a > 0: by its asymptotic series at a + 10, where the series has the accuracy of the
// dtype, and the recurrence back to a.
Array digamma(const Array& a, const RuleOps& op) {
  const auto number = [&](double v) { return op.number(v, a); };
  Array steps = op(div_p, number(1), a);
  for (int k = 1; k < 10; ++k)
    steps = op(add_p, steps, op(div_p, number(1), op(add_p, a, number(k))));
  const Array z = op(add_p, a, number(10));
  const Array inverse = op(div_p, number(1), z);
  const Array square = op(mul_p, inverse, inverse);
  // Terms B(2k) / (2k), with Bernoulli's numbers B.
  constexpr double kTerms[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                               1.0 / 132, -691.0 / 32760, 1.0 / 12};
  Array tail = number(0);
  for (int k = 6; k >= 0; --k) tail = op(mul_p, op(add_p, tail, number(kTerms[k])), square);
  const Array near = op(sub_p, op(log_p, z), op(mul_p, number(0.5), inverse));
  return op(sub_p, op(sub_p, near, tail), steps);
}

// The slope of log(x) with respect to a with P(a, x) held constant: -(dP/da) / (x dP/dx). P is the
// cumulative distribution function.
class Slope {
 public:
  Slope(const Array& a, const Array& x, const Array& log_x, SourceLine source)
      : op_(source), a_(a), x_(x), log_x_(log_x) {
    eps_ = node_of(a)->type.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon()
                                                  : std::numeric_limits<float>::epsilon();
  }

  Array run() const {
    const Array large = op_(gt_p, a_, number(kLarge));
    const Array above = op_(bit_and_p, op_(gt_p, x_, number(1)), op_(gt_p, x_, a_));
    return op_.select(large, of_large(),
                      op_.select(above, fraction(large, above), series(large, above)));
  }

 private:
  Array number(double v) const { return op_.number(v, a_); }
  Array whole(double v) const { return op_.to_shape(number(v), node_of(a_)->type.dims()); }
  Array any(const Array& x) const {
    return shmap::any(Operand(x, op_.source().file, op_.source().line));
  }

  // For large a: x = a (1 - 1 / (9 a) + z / (3 sqrt(a)))^3 with z a fixed normal, to a relative
  // error of the order of 1 / a^2 (Wilson and Hilferty, 1931).
  Array of_large() const {
    const Array ninth = op_(div_p, number(1.0 / 9), a_);
    const Array root = op_(exp_p, op_(mul_p, op_(sub_p, log_x_, op_(log_p, a_)), number(1.0 / 3)));
    // part is z / (3 sqrt(a)), whose derivative is -part / (2 a).
    const Array part = op_(sub_p, root, op_(sub_p, number(1), ninth));
    const Array inner = op_(div_p, op_(sub_p, ninth, op_(mul_p, number(0.5), part)), root);
    return op_(div_p, op_(add_p, number(1), op_(mul_p, number(3), inner)), a_);
  }

  Array series(const Array& large, const Array& above) const;
  Array fraction(const Array& large, const Array& above) const;

  RuleOps op_;
  Array a_, x_, log_x_;
  double eps_;
};

// For small x: P(a, x) = x^a e^-x / gamma(a + 1) * sum of c(n), with c(n) = c(n - 1) x / (a + n).
// The loop sums the terms and their derivatives.
Array Slope::series(const Array& large, const Array& above) const {
  using State = std::tuple<Array, Array, Array, Array, Array, Array>;
  const Array idle = op_(bit_or_p, large, above);
  const Array open = op_(bit_and_p, op_(not__p, idle), op_(eq_p, x_, x_));
  const State sums = while_loop(
      [&](State state) { return any(std::get<5>(state)); },
      [&](State state) {
        const auto& [r, c, dc, total, slope, more] = state;
        const Array next = op_(add_p, r, number(1));
        const Array ratio = op_(div_p, x_, next);
        const Array dc_next = op_(mul_p, ratio, op_(sub_p, dc, op_(div_p, c, next)));
        const Array c_next = op_(mul_p, c, ratio);
        const Array slope_next = op_(add_p, slope, dc_next);
        const Array total_next = op_(add_p, total, c_next);
        const Array far =
            op_(bit_or_p,
                op_(gt_p, op_(abs_p, dc_next), op_(mul_p, number(eps_), op_(abs_p, slope_next))),
                op_(gt_p, c_next, op_(mul_p, number(eps_), total_next)));
        const Array few = op_(lt_p, op_(sub_p, next, a_), number(kMostTrips));
        const auto keep = [&, &going_on = more](const Array& fresh, const Array& old) {
          return op_.select(going_on, fresh, old);
        };
        return State{keep(next, r),           keep(c_next, c),
                     keep(dc_next, dc),       keep(total_next, total),
                     keep(slope_next, slope), op_(bit_and_p, more, op_(bit_and_p, far, few))};
      },
      State{a_, whole(1), whole(0), whole(1), whole(0), open}, op_.source());
  const Array& total = std::get<3>(sums);
  const Array& slope = std::get<4>(sums);
  const Array of_factor = op_(sub_p, log_x_, digamma(op_(add_p, a_, number(1)), op_));
  return op_(neg_p, op_(div_p, op_(add_p, slope, op_(mul_p, total, of_factor)), a_));
}

// For large x: 1 - P(a, x) = x^a e^-x / gamma(a) * f, where f is Legendre's continued fraction 1 /
// (b(0) + k(1) / (b(1) + k(2) / ...)), b(n) = x + 2 n + 1 - a, k(n) = n (a - n). The loop computes
// convergents p / q and their derivatives, and divides all by q in each trip.
Array Slope::fraction(const Array& large, const Array& above) const {
  using State = std::tuple<Array, Array, Array, Array, Array, Array, Array, Array, Array>;
  // Elements that use another formula get values with which the loop ends at once.
  const Array used = op_(bit_and_p, above, op_(not__p, large));
  const Array a = op_.select(used, a_, whole(1)), x = op_.select(used, x_, whole(2));
  const Array log_x = op_.select(used, log_x_, whole(0));
  const Array of_factor = op_(sub_p, log_x, digamma(a, op_));
  const Array first = op_(sub_p, op_(add_p, x, number(1)), a);
  const Array over = op_(div_p, number(1), first);
  const State ended = while_loop(
      [&](State state) { return any(std::get<8>(state)); },
      [&](State state) {
        const auto& [n, p, p_before, q_before, dp, dp_before, dq, dq_before, more] = state;
        const Array k = op_(add_p, n, number(1));
        const Array b =
            op_(add_p, op_(sub_p, op_(add_p, x, op_(mul_p, number(2), k)), a), number(1));
        const Array m = op_(mul_p, k, op_(sub_p, a, k));
        const auto combine = [&](const Array& now, const Array& before) {
          return op_(add_p, op_(mul_p, b, now), op_(mul_p, m, before));
        };
        const Array p_next = combine(p, p_before);
        // divided by q, like all values of the next trip
        const Array q_next = op_(add_p, b, op_(mul_p, m, q_before));
        const Array dp_next =
            op_(add_p, op_(sub_p, combine(dp, dp_before), p), op_(mul_p, k, p_before));
        const Array dq_next =
            op_(add_p, op_(sub_p, combine(dq, dq_before), number(1)), op_(mul_p, k, q_before));
        const Array scale = op_(div_p, number(1), q_next);
        const auto scaled = [&](const Array& v) { return op_(mul_p, v, scale); };
        const Array f = scaled(p_next), df = scaled(dp_next), dg = scaled(dq_next);
        const Array change = op_(add_p,
                                 op_(abs_p, op_(sub_p, op_(sub_p, df, op_(mul_p, f, dg)),
                                                op_(sub_p, dp, op_(mul_p, p, dq)))),
                                 op_(abs_p, op_(mul_p, of_factor, op_(sub_p, f, p))));
        const Array far = op_(gt_p, change, op_(mul_p, number(eps_), f));
        const Array few = op_(lt_p, k, number(kMostTrips));
        const auto keep = [&, &going_on = more](const Array& fresh, const Array& old) {
          return op_.select(going_on, fresh, old);
        };
        return State{keep(k, n),
                     keep(f, p),
                     keep(scaled(p), p_before),
                     keep(scale, q_before),
                     keep(df, dp),
                     keep(scaled(dp), dp_before),
                     keep(dg, dq),
                     keep(scaled(dq), dq_before),
                     op_(bit_and_p, more, op_(bit_and_p, far, few))};
      },
      State{whole(0), over, whole(0), over, whole(0), whole(0), op_(neg_p, over), whole(0), used},
      op_.source());
  const Array& f = std::get<1>(ended);
  const Array df = op_(sub_p, std::get<4>(ended), op_(mul_p, f, std::get<6>(ended)));
  return op_(add_p, df, op_(mul_p, f, of_factor));
}

void jvp_sample(JvpCall& call) {
  call.run();
  if (!call.has_tangent(1)) {
    call.tangents_out[0] = call.tangents[0];
    return;
  }
  const RuleOps op(call.source);
  const DType dtype = call.type(0).dtype();
  const DType wide = dtype == DType::f64 ? dtype : DType::f32;
  const bool logs = static_cast<const GammaSampleParams&>(call.params).log_space;
  const Array a = convert(call.primals[1], wide, call.source);
  const Array drawn = convert(call.primals[0], wide, call.source);
  const Array x = logs ? op(exp_p, drawn) : drawn;
  Array slope = Slope(a, x, logs ? drawn : op(log_p, x), call.source).run();
  // A sample that underflowed to zero has the derivative zero.
  if (!logs) {
    slope = op.select(op(eq_p, x, op.number(0, x)),
                      op.to_shape(op.number(0, x), call.type(0).dims()), op(mul_p, slope, x));
  }
  const Array t = op(mul_p, call.tangents[1], convert(slope, dtype, call.source));
  call.tangents_out[0] = call.has_tangent(0) ? op(add_p, call.tangents[0], t) : t;
}

}  // namespace

void register_gamma_sample_derivative() { random_gamma_sample_p.jvp = Rule<JvpFn>(jvp_sample); }

}  // namespace shmap
