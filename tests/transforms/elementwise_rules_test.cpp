// Derivatives of the elementwise primitives, by numbers.
#include <gtest/gtest.h>

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
  };
  for (const UnaryCase& c : cases) {
    for (const Shape& shape : {Shape{5}, Shape{}, Shape{0}, Shape{1}, Shape{2, 3}}) {
      const RuleCase rule{c.p->name, op(*c.p), {spread_values(1, shape, c.lo, c.hi)}};
      EXPECT_EQ(check_rules(rule), "") << to_string(shape);
    }
  }
}

}  // namespace
}  // namespace shmap
