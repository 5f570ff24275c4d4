#include "core/ops/elementwise_rules.h"

#include <cmath>
#include <numbers>
#include <optional>

#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/rule_ops.h"

namespace shmap {

namespace {

// Runs y = f(x). The tangent of y is the tangent of x times a factor.
struct Unary : RuleOps {
  explicit Unary(JvpCall& c)
      : RuleOps(c.source), call(c), x(c.primals[0]), y((c.run(), c.out[0])) {}
  using RuleOps::number;
  Array number(double value) const { return number(value, x); }
  void times(const Array& factor) const {
    call.tangents_out[0] = (*this)(mul_p, call.tangents[0], factor);
  }
  void over(const Array& divisor) const {
    call.tangents_out[0] = (*this)(div_p, call.tangents[0], divisor);
  }

  JvpCall& call;
  const Array& x;
  const Array& y;
};

// Runs an operation of several operands. Its tangent is a sum over the operands' tangents; tangents
// of scalars are broadcast to the result's shape where necessary.
struct Joint : RuleOps {
  explicit Joint(JvpCall& c) : RuleOps(c.source), call(c) { call.run(); }
  bool has(std::size_t i) const { return call.has_tangent(i); }
  const Array& in(std::size_t i) const { return call.primals[i]; }
  const Array& t(std::size_t i) const { return call.tangents[i]; }
  const Array& y() const { return call.out[0]; }
  void add(const Array& part) const {
    Array& sum = call.tangents_out[0];
    sum = add_tangents(sum, to_shape(part, node_of(y())->type.dims()), source());
  }
  void times(std::size_t i, const Array& factor) const { add((*this)(mul_p, t(i), factor)); }

  JvpCall& call;
};

// The value of a host scalar; nothing for other values.
std::optional<double> host_number(const Array& x, SourceLine source) {
  if (node_of(x)->kind != NodeKind::literal) return std::nullopt;
  return convert(x, DType::f64, source).item<double>(source);
}

void jvp_extremum(JvpCall& call, const Primitive& wins) {
  const Joint op(call);
  for (std::size_t i = 0; i < 2; ++i)
    if (op.has(i)) op.times(i, winner_share(op, wins, op.in(i), op.in(1 - i)));
}

}  // namespace

// ---- one operand
void jvp_neg(JvpCall& call) { jvp_linear(call); }
// At 0 the derivative is that for positive x.
void jvp_abs(JvpCall& call) {
  const Unary op(call);
  op.times(op.select(op(ge_p, op.x, op.number(0)), op.number(1), op.number(-1)));
}
void jvp_square(JvpCall& call) {
  const Unary op(call);
  op.times(op(mul_p, op.number(2), op.x));
}
void jvp_exp(JvpCall& call) {
  const Unary op(call);
  op.times(op.y);
}
void jvp_exp2(JvpCall& call) {
  const Unary op(call);
  op.times(op(mul_p, op.number(std::numbers::ln2), op.y));
}
void jvp_expm1(JvpCall& call) {
  const Unary op(call);
  op.times(op(add_p, op.y, op.number(1)));
}
void jvp_log(JvpCall& call) {
  const Unary op(call);
  op.over(op.x);
}
void jvp_log1p(JvpCall& call) {
  const Unary op(call);
  op.over(op(add_p, op.x, op.number(1)));
}
void jvp_sin(JvpCall& call) {
  const Unary op(call);
  op.times(op(cos_p, op.x));
}
void jvp_cos(JvpCall& call) {
  const Unary op(call);
  op.times(op(neg_p, op(sin_p, op.x)));
}
void jvp_tan(JvpCall& call) {
  const Unary op(call);
  op.times(op(add_p, op.number(1), op(square_p, op.y)));
}
// 1 - y² as the product (1 - y) (1 + y), which is more accurate near |y| = 1.
void jvp_tanh(JvpCall& call) {
  const Unary op(call);
  op.times(op(mul_p, op(add_p, op.number(1), op.y), op(sub_p, op.number(1), op.y)));
}
void jvp_asin(JvpCall& call) {
  const Unary op(call);
  op.times(op(rsqrt_p, op(sub_p, op.number(1), op(square_p, op.x))));
}
void jvp_acos(JvpCall& call) {
  const Unary op(call);
  op.times(op(neg_p, op(rsqrt_p, op(sub_p, op.number(1), op(square_p, op.x)))));
}
void jvp_atan(JvpCall& call) {
  const Unary op(call);
  op.over(op(add_p, op.number(1), op(square_p, op.x)));
}
void jvp_sinh(JvpCall& call) {
  const Unary op(call);
  op.times(op(cosh_p, op.x));
}
void jvp_cosh(JvpCall& call) {
  const Unary op(call);
  op.times(op(sinh_p, op.x));
}
void jvp_asinh(JvpCall& call) {
  const Unary op(call);
  op.times(op(rsqrt_p, op(add_p, op(square_p, op.x), op.number(1))));
}
// x² - 1 and not (x - 1) (x + 1): the derivative of that product at 1 is a sum of two terms, of
// which one is 0, and 0 times the infinite derivative of rsqrt would be NaN.
void jvp_acosh(JvpCall& call) {
  const Unary op(call);
  op.times(op(rsqrt_p, op(sub_p, op(square_p, op.x), op.number(1))));
}
// Two factors and not one divisor, whose own derivative would be infinite where x is.
void jvp_atanh(JvpCall& call) {
  const Unary op(call);
  op.over(op(sub_p, op.number(1), op.x));
  Array& tangent = call.tangents_out[0];
  tangent = op(mul_p, tangent, op(div_p, op.number(1), op(add_p, op.number(1), op.x)));
}
void jvp_sqrt(JvpCall& call) {
  const Unary op(call);
  op.times(op(div_p, op.number(0.5), op.y));
}
void jvp_rsqrt(JvpCall& call) {
  const Unary op(call);
  op.times(op(mul_p, op.number(-0.5), op(div_p, op.y, op.x)));
}
// y^-2 as the square of 1/y: the second derivative of 1/y² would be NaN at 0 and at infinity.
void jvp_cbrt(JvpCall& call) {
  const Unary op(call);
  op.times(op(mul_p, op.number(1.0 / 3), op(square_p, op(div_p, op.number(1), op.y))));
}
void jvp_logistic(JvpCall& call) {
  const Unary op(call);
  op.times(op(mul_p, op.y, op(sub_p, op.number(1), op.y)));
}
void jvp_erf(JvpCall& call) {
  const Unary op(call);
  op.times(
      op(mul_p, op.number(2 * std::numbers::inv_sqrtpi), op(exp_p, op(neg_p, op(square_p, op.x)))));
}
void jvp_erfc(JvpCall& call) {
  const Unary op(call);
  op.times(op(mul_p, op.number(-2 * std::numbers::inv_sqrtpi),
              op(exp_p, op(neg_p, op(square_p, op.x)))));
}
void jvp_erf_inv(JvpCall& call) {
  const Unary op(call);
  op.times(op(mul_p, op.number(0.5 / std::numbers::inv_sqrtpi), op(exp_p, op(square_p, op.y))));
}

// ---- several operands
void jvp_add(JvpCall& call) {
  const Joint op(call);
  if (op.has(0) && op.has(1)) return op.add(op(add_p, op.t(0), op.t(1)));
  op.add(op.t(op.has(0) ? 0 : 1));
}
void jvp_sub(JvpCall& call) {
  const Joint op(call);
  if (op.has(0) && op.has(1)) return op.add(op(sub_p, op.t(0), op.t(1)));
  op.add(op.has(0) ? op.t(0) : op(neg_p, op.t(1)));
}
void jvp_mul(JvpCall& call) { jvp_bilinear(call); }
void jvp_div(JvpCall& call) {
  const Joint op(call);
  if (op.has(0)) op.add(op(div_p, op.t(0), op.in(1)));
  if (op.has(1)) op.times(1, op(neg_p, op(div_p, op.y(), op.in(1))));
}
// rem(x, y) is x - y * q with a whole q, which is (x - rem) / y, rounded.
void jvp_rem(JvpCall& call) {
  const Joint op(call);
  if (op.has(0)) op.add(op.t(0));
  if (!op.has(1)) return;
  const Array q = op(round_p, op(div_p, op(sub_p, op.in(0), op.y()), op.in(1)));
  op.times(1, op(neg_p, q));
}
// d/dx is y x^(y-1), d/dy is x^y log x; a product of 0 and an infinite value counts as 0.
void jvp_pow(JvpCall& call) {
  const Joint op(call);
  const Array &x = op.in(0), &y = op.in(1);
  const Array one = op.number(1, x), zero = op.number(0, x);
  if (op.has(0)) {
    const std::optional<double> power = host_number(y, op.source());
    if (power == 1) {
      op.add(op.t(0));
    } else if (power == 2) {
      op.times(0, op(mul_p, y, x));
    } else if (power) {
      if (power != 0) op.times(0, op(mul_p, y, op(pow_p, x, op(sub_p, y, one))));
    } else {
      const Array base = op.select(op(bit_and_p, op(eq_p, x, zero), op(eq_p, y, zero)), one, x);
      op.times(0, op(mul_p, y, op(pow_p, base, op(sub_p, y, one))));
    }
  }
  if (op.has(1)) op.times(1, op(mul_p, op(log_p, op.select(op(eq_p, x, zero), one, x)), op.y()));
}
void jvp_max(JvpCall& call) { jvp_extremum(call, gt_p); }
void jvp_min(JvpCall& call) { jvp_extremum(call, lt_p); }
void jvp_atan2(JvpCall& call) {
  const Joint op(call);
  const Array &y = op.in(0), &x = op.in(1);
  const Array radius = op(add_p, op(square_p, x), op(square_p, y));
  if (op.has(0)) op.times(0, op(div_p, x, radius));
  if (op.has(1)) op.times(1, op(div_p, op(neg_p, y), radius));
}
void jvp_select_n(JvpCall& call) {
  const Joint op(call);
  const Array zero = op.number(0, op.in(1));
  op.add(op.select(op.in(0), op.has(2) ? op.t(2) : zero, op.has(1) ? op.t(1) : zero));
}
// At a bound the derivative with respect to x is 0. Where lo > hi the result is hi, which then gets
// the tangent.
void jvp_clamp(JvpCall& call) {
  const Joint op(call);
  const Array &lo = op.in(0), &x = op.in(1), &hi = op.in(2);
  const auto part = [&](std::size_t i, const Array& where) {
    op.add(op.select(where, op.t(i), op.number(0, x)));
  };
  if (op.has(0)) part(0, op(bit_and_p, op(gt_p, lo, x), op(lt_p, lo, hi)));
  if (op.has(1)) part(1, op(bit_and_p, op(gt_p, x, lo), op(lt_p, x, hi)));
  if (op.has(2)) part(2, op(bit_or_p, op(lt_p, hi, x), op(lt_p, hi, lo)));
}
void jvp_convert(JvpCall& call) {
  call.run();
  if (is_differentiable(params_as<ConvertParams>(call.params).new_dtype))
    call.tangents_out[0] = bind(call.primitive, call.tangents[0], call.params, call.source);
}

// ---- transposes
void transpose_neg(TransposeCall& call) {
  call.out[0] = RuleOps(call.source)(neg_p, call.cotangents[0]);
}
void transpose_add(TransposeCall& call) {
  for (std::size_t i = 0; i < 2; ++i)
    if (call.is_linear(i))
      call.out[i] = unbroadcast(call.cotangents[0], call.in_types[i], call.source);
}
void transpose_sub(TransposeCall& call) {
  transpose_add(call);
  if (call.is_linear(1)) call.out[1] = RuleOps(call.source)(neg_p, call.out[1]);
}
void transpose_mul(TransposeCall& call) {
  if (call.is_linear(0) && call.is_linear(1)) throw_not_linear(call, "each of two factors");
  const std::size_t i = call.is_linear(0) ? 0 : 1;
  const Array part = RuleOps(call.source)(mul_p, call.cotangents[0], call.in[1 - i]);
  call.out[i] = unbroadcast(part, call.in_types[i], call.source);
}
void transpose_div(TransposeCall& call) {
  if (call.is_linear(1)) throw_not_linear(call, "the divisor");
  const Array part = RuleOps(call.source)(div_p, call.cotangents[0], call.in[1]);
  call.out[0] = unbroadcast(part, call.in_types[0], call.source);
}
void transpose_select_n(TransposeCall& call) {
  const RuleOps op(call.source);
  const Array& ct = call.cotangents[0];
  const Array zero = op.number(0, ct);
  for (std::size_t i = 1; i < 3; ++i) {
    if (!call.is_linear(i)) continue;
    const Array part = i == 1 ? op.select(call.in[0], zero, ct) : op.select(call.in[0], ct, zero);
    call.out[i] = unbroadcast(part, call.in_types[i], call.source);
  }
}
void transpose_convert(TransposeCall& call) {
  call.out[0] = convert(call.cotangents[0], call.in_types[0].dtype(), call.source);
}

}  // namespace shmap
