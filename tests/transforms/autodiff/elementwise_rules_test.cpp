// Derivatives of the elementwise primitives, by numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/ops/rule_ops.h"
#include "shmap/shmap.h"
#include "tests/support/numeric_rules.h"

namespace shmap {
namespace {

using testing::ArrayFn;
using testing::Arrays;
using testing::check_rules;
using testing::RuleCase;
using testing::spread_values;

ArrayFn op(const Primitive& p) {
  return [&p](const Arrays& in) {
    Arrays operands = in;
    return bind_all(p, operands, no_params, {});
  };
}

struct UnaryCase {
  const Primitive* p;
  double lo, hi;  // where it is smooth
  double low_precision = 32;
};

TEST(ElementwiseRules, OfOneOperand) {
  const UnaryCase cases[] = {
      {&neg_p, -2, 2},      {&abs_p, 0.1, 2},     {&abs_p, -2, -0.1},  {&sign_p, 0.1, 2},
      {&square_p, -2, 2},   {&floor_p, 0.1, 0.9}, {&ceil_p, 0.1, 0.9}, {&round_p, 0.6, 1.4},
      {&exp_p, -2, 2},      {&expm1_p, -2, 2},    {&log_p, 0.5, 3},    {&log1p_p, -0.5, 2},
      {&sin_p, -2, 2},      {&cos_p, -2, 2},      {&tan_p, -1, 1},     {&tanh_p, -2, 2},
      {&asin_p, -0.7, 0.7}, {&acos_p, -0.7, 0.7}, {&atan_p, -2, 2},    {&sinh_p, -2, 2},
      {&cosh_p, -2, 2},     {&sqrt_p, 0.5, 3},    {&rsqrt_p, 0.5, 3},  {&cbrt_p, 0.5, 3},
      {&cbrt_p, -3, -0.5},  {&logistic_p, -3, 3}, {&erf_p, -2, 2},     {&erf_inv_p, -0.7, 0.7},
      {&exp2_p, -2, 2},     {&asinh_p, -2, 2},    {&acosh_p, 1.2, 3},  {&atanh_p, -0.7, 0.7},
      {&erfc_p, -2, 2},
  };
  for (const UnaryCase& c : cases) {
    for (const Shape& shape : {Shape{5}, Shape{}, Shape{0}, Shape{1}, Shape{2, 3}}) {
      const RuleCase rule{c.p->name, op(*c.p), {spread_values(1, shape, c.lo, c.hi)}};
      EXPECT_EQ(check_rules(rule), "") << to_string(shape);
    }
  }
}

// At the ends of the domains, where an infinite factor must not meet a zero: the values of JAX
// 0.10.
TEST(ElementwiseRules, SecondDerivativesAtTheEnds) {
  const float inf = INFINITY;
  const struct {
    const Primitive* p;
    float x, first, second;
  } cases[] = {
      {&cbrt_p, 0.f, inf, -inf}, {&cbrt_p, -0.f, inf, inf}, {&cbrt_p, inf, 0, 0},
      {&cbrt_p, -inf, 0, 0},     {&acosh_p, 1, inf, -inf},  {&acosh_p, -1, inf, inf},
      {&atanh_p, inf, 0, 0},     {&atanh_p, -inf, 0, 0},
  };
  for (const auto& c : cases) {
    const auto f = [&](Array x) { return op(*c.p)({x})[0]; };
    const auto forward = [&](Array x) { return jvp(f, std::tuple{x}, std::tuple{1.f}).second; };
    const std::string at = std::string(c.p->name) + " at " + std::to_string(c.x);
    const Array x = full({}, c.x);
    EXPECT_EQ(grad(f)(x).item<float>(), c.first) << at;
    EXPECT_EQ(grad(grad(f))(x).item<float>(), c.second) << at;
    EXPECT_EQ(jvp(forward, std::tuple{x}, std::tuple{1.f}).second.item<float>(), c.second) << at;
  }
}

struct BinaryCase {
  const Primitive* p;
  double lo[2], hi[2];
};

TEST(ElementwiseRules, OfTwoOperands) {
  const BinaryCase cases[] = {
      {&add_p, {-2, -2}, {2, 2}},       {&sub_p, {-2, -2}, {2, 2}},
      {&mul_p, {-2, -2}, {2, 2}},       {&div_p, {-2, 0.5}, {2, 2}},
      {&div_p, {-2, -2}, {2, -0.5}},    {&rem_p, {7.1, 2}, {7.9, 2.3}},  // 7.1 = 3 * 2.3 + 0.2
      {&rem_p, {-7.9, 2}, {-7.1, 2.3}}, {&pow_p, {0.5, -2}, {3, 2}},
      {&max_p, {-2, 0.1}, {0, 2}},      {&max_p, {0.1, -2}, {2, 0}},
      {&min_p, {-2, 0.1}, {0, 2}},      {&atan2_p, {0.5, -2}, {2, 2}},
      {&atan2_p, {-2, 0.5}, {2, 2}},
  };
  const std::pair<Shape, Shape> shapes[] = {{{5}, {5}}, {{5}, {}},        {{}, {5}},
                                            {{}, {}},   {{0}, {0}},       {{}, {0}},
                                            {{1}, {1}}, {{2, 3}, {2, 3}}, {{2, 3}, {}}};
  for (const BinaryCase& c : cases) {
    for (const auto& [a, b] : shapes) {
      const RuleCase rule{
          c.p->name,
          op(*c.p),
          {spread_values(1, a, c.lo[0], c.hi[0]), spread_values(2, b, c.lo[1], c.hi[1])}};
      EXPECT_EQ(check_rules(rule), "") << to_string(a) << to_string(b);
    }
  }
}

// Each operation with a host scalar as an operand, which adapts to every dtype.
TEST(ElementwiseRules, OfAHostScalar) {
  const Array x = spread_values(1, {5}, 0.5, 3);
  const std::pair<const char*, ArrayFn> cases[] = {
      {"x + 2", [](const Arrays& a) { return Arrays{a[0] + 2}; }},
      {"2 - x", [](const Arrays& a) { return Arrays{2 - a[0]}; }},
      {"x * 3", [](const Arrays& a) { return Arrays{a[0] * 3}; }},
      {"x / 4", [](const Arrays& a) { return Arrays{a[0] / 4}; }},
      {"4 / x", [](const Arrays& a) { return Arrays{4 / a[0]}; }},
      {"x^0", [](const Arrays& a) { return Arrays{pow(a[0], 0)}; }},
      {"x^1", [](const Arrays& a) { return Arrays{pow(a[0], 1)}; }},
      {"x^2", [](const Arrays& a) { return Arrays{pow(a[0], 2)}; }},
      {"x^3", [](const Arrays& a) { return Arrays{pow(a[0], 3)}; }},
      {"x^-1.5", [](const Arrays& a) { return Arrays{pow(a[0], -1.5)}; }},
      {"2^x", [](const Arrays& a) { return Arrays{pow(2, a[0])}; }},
      {"max(x, 1)", [](const Arrays& a) { return Arrays{maximum(a[0], 0.25)}; }},
      {"clip(x)", [](const Arrays& a) { return Arrays{clip(a[0], 1.1, 2.2)}; }},
      {"reciprocal", [](const Arrays& a) { return Arrays{reciprocal(a[0])}; }},
      {"x % 7", [](const Arrays& a) { return Arrays{a[0] % 7}; }},
  };
  for (const auto& [name, f] : cases) EXPECT_EQ(check_rules({name, f, {x}}), "");
}

// nextafter is no primitive: it is computed from the bits of its operands.
TEST(ElementwiseRules, OfNextafterAreZero) {
  const Array x = spread_values(1, {5}, -2, 2), y = spread_values(2, {5}, -2, 2);
  const auto f = [](Array a, Array b) { return nextafter(a, b); };
  const std::vector<double> wanted = f(x, y).to_vector<double>();
  EXPECT_NE(wanted, x.to_vector<double>());
  EXPECT_EQ(jit(f)(x, y).to_vector<double>(), wanted);
  EXPECT_EQ(vmap(f)(x, y).to_vector<double>(), wanted);
  const auto [dx, dy] = grad<0, 1>([&](Array a, Array b) { return sum(f(a, b) * a); })(x, y);
  EXPECT_EQ(dx.to_vector<double>(), wanted);
  EXPECT_EQ(dy.to_vector<double>(), std::vector<double>(5, 0.0));
}

TEST(ElementwiseRules, Selection) {
  const Array pred = array({true, false, true, true, false}, {5});
  const Array a = spread_values(1, {5}, -1, 1), b = spread_values(2, {5}, -1, 1);
  const Array one = spread_values(3, {}, -1, 1), yes = array({true}, {1})[0];
  for (const Arrays& at : {Arrays{pred, a, b}, Arrays{yes, a, b}, Arrays{pred, one, b},
                           Arrays{pred, a, one}, Arrays{pred, one, one}, Arrays{yes, one, one}})
    EXPECT_EQ(check_rules({"select_n", op(select_n_p), at}), "");
}

TEST(ElementwiseRules, Clamp) {
  // Below, inside, above; and where the bounds are the wrong way round, the upper one wins.
  const Array lo = array({-1., -1., -1., 1., 1., 1.}, {6});
  const Array hi = array({1., 1., 1., -1., -1., -1.}, {6});
  const Array x = array({-2., 0.25, 2., -2., 0.25, 2.}, {6});
  const Array low = spread_values(1, {}, -0.6, -0.5), high = spread_values(1, {}, 0.5, 0.6);
  for (const Arrays& at :
       {Arrays{lo, x, hi}, Arrays{low, x, high}, Arrays{lo, x, high}, Arrays{low, low + 0.5, high}})
    EXPECT_EQ(check_rules({"clamp", op(clamp_p), at}), "");
}

TEST(ElementwiseRules, Conversions) {
  const Array x = spread_values(1, {5}, -2, 2);
  const auto through = [](DType t) {
    return
        [t](const Arrays& in) { return Arrays{astype(astype(in[0] * in[0], t), in[0].dtype())}; };
  };
  // A conversion to f64 and back loses nothing; to integers it loses everything.
  EXPECT_EQ(check_rules({"through f64", through(f64), {x}}), "");
  EXPECT_EQ(check_rules({"through i32", through(i32), {spread_values(1, {5}, 0.6, 0.9)}}), "");
  const auto bits = [](const Arrays& in) {
    return Arrays{in[0] * astype(bitcast(astype(in[0], f32), i32) * 0, in[0].dtype()) + in[0]};
  };
  EXPECT_EQ(check_rules({"bitcast", bits, {x}}), "");
  const auto compared = [](const Arrays& in) {
    return Arrays{astype(in[0] < in[1], in[0].dtype()) + in[0] * 0, isfinite(in[0])};
  };
  EXPECT_EQ(check_rules({"compared", compared, {x, x + 0.5}}), "");
}

TEST(ElementwiseRules, OfIntegersThereIsNoTangent) {
  const Array n = array({1, 2, 3}, {3});
  const auto f = [](const Arrays& in) {
    return Arrays{in[0] * astype(abs(in[1]) + (in[1] ^ 5), in[0].dtype()), in[1] * 2};
  };
  EXPECT_EQ(check_rules({"integers", f, {spread_values(1, {3}, -1, 1), n}}), "");
}

TEST(StopGradient, IsTheValueWithoutATangent) {
  const auto f = [](const Arrays& in) {
    return Arrays{stop_gradient(in[0]) * in[0] + stop_gradient(in[1])};
  };
  const Array x = spread_values(1, {4}, -2, 2), y = spread_values(2, {4}, -2, 2);
  const auto [value, slope] = jvp(
      [&](Array a, Array b) {
        return f({a, b})[0];
      },
      std::tuple{x, y}, std::tuple{ones({4}, f64), ones({4}, f64)});
  EXPECT_EQ(value.to_vector<double>(), (x * x + y).to_vector<double>());
  EXPECT_EQ(slope.to_vector<double>(), x.to_vector<double>());
  // The same at every level: only the constant 1 remains of the derivative.
  const auto second = grad(grad([](Array a) { return stop_gradient(a) * sin(a); }));
  const double at = 0.5;
  EXPECT_DOUBLE_EQ(second(Array(at)).item<double>(), -at * std::sin(at));
}

TEST(StopGradient, LivesOnInPrograms) {
  const auto f = [](Array a) { return sum(stop_gradient(a) * a); };
  const Array x = array({1.f, 2.f, 3.f}, {3});
  EXPECT_EQ(grad(jit(f))(x).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(jit(grad(f))(x).to_vector<float>(), x.to_vector<float>());
  const ClosedJaxpr j = make_jaxpr(f)(x);
  EXPECT_EQ(to_string(j),
            "{ lambda a:f32[3] .\n"
            "  let b:f32[3] = stop_gradient a\n"
            "      c:f32[3] = mul b a\n"
            "      d:f32[] = reduce_sum[axes=(0,)] c\n"
            "  in ( d ) }");
  EXPECT_EQ(eval_jaxpr(j, {x})[0].item<float>(), 14.f);
  // A host scalar goes through too.
  const ClosedJaxpr s = make_jaxpr([](Array a) { return stop_gradient(a); })(Array(2.f));
  EXPECT_EQ(eval_jaxpr(s, {Array(2.f)})[0].item<float>(), 2.f);
}

// The number that softmax and logsumexp subtract adds nothing to derivatives.
TEST(StopGradient, TheGreatestOfASoftmaxIsAConstant) {
  const std::string text = to_string(make_jaxpr([](Array x) {
    return jvp(
        [](Array a) {
          return std::tuple{softmax(a), logsumexp(a, 0)};
        },
        std::tuple{x}, std::tuple{x});
  })(ShapedArray({4}, f32)));
  EXPECT_EQ(text.find(" eq "), std::string::npos) << text;
}

}  // namespace
}  // namespace shmap
