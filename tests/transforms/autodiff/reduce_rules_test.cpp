// Derivatives of reductions, cumulative operations and sorts, by numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/ir/trace.h"
#include "core/ops/reduce.h"
#include "core/ops/scan.h"
#include "core/ops/sort.h"
#include "shmap/shmap.h"
#include "tests/support/numeric_rules.h"

namespace shmap {
namespace {

using testing::ArrayFn;
using testing::Arrays;
using testing::check_rules;
using testing::spread_values;

ArrayFn over(const Primitive& p, Dims axes) {
  return [&p, axes](const Arrays& in) {
    return Arrays{bind(p, in[0], ReduceParams(axes), SourceLine())};
  };
}

TEST(ReduceRules, SumProductAndExtrema) {
  for (const Primitive* p : {&reduce_sum_p, &reduce_prod_p, &reduce_max_p, &reduce_min_p}) {
    for (const Dims& axes : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{0, 2}, Dims{0, 1, 2}}) {
      EXPECT_EQ(check_rules({p->name, over(*p, axes), {spread_values(1, {2, 3, 2}, -2, 2)}}), "")
          << to_string(ReduceParams(axes));
    }
    EXPECT_EQ(check_rules({p->name, over(*p, {0}), {spread_values(1, {1}, -2, 2)}}), "");
    EXPECT_EQ(check_rules({p->name, over(*p, {0}), {spread_values(1, {2, 0}, -2, 2)}}), "");
  }
  // The result for no elements is a constant.
  EXPECT_EQ(check_rules({"sum", over(reduce_sum_p, {1}), {zeros({2, 0}, f64)}}), "");
  EXPECT_EQ(check_rules({"prod", over(reduce_prod_p, {1}), {zeros({2, 0}, f64)}}), "");
}

TEST(ReduceRules, ProductsOfZeros) {
  const Array x = array({0., 2., 3., 0., 0., 5., 1., 2., 4.}, {3, 3});
  for (const Dims& axes : {Dims{0}, Dims{1}, Dims{0, 1}})
    EXPECT_EQ(check_rules({"reduce_prod", over(reduce_prod_p, axes), {x}}), "");
  for (const bool reverse : {false, true}) {
    const auto f = [reverse](const Arrays& in) {
      return Arrays{bind(cumprod_p, in[0], ScanParams(1, reverse), SourceLine())};
    };
    EXPECT_EQ(check_rules({"cumprod", f, {x}}), "");
  }
}

TEST(ReduceRules, WhereTheGreatestIsHasNoDerivative) {
  const auto f = [](const Arrays& in) {
    return Arrays{argmax(in[0], 0), argmin(in[0], 0), sum(in[0])};
  };
  EXPECT_EQ(check_rules({"argmax", f, {spread_values(1, {5}, -2, 2)}}), "");
}

TEST(ReduceRules, Composites) {
  const Array x = spread_values(1, {3, 4}, -2, 2);
  const std::pair<const char*, ArrayFn> cases[] = {
      {"mean", [](const Arrays& in) { return Arrays{mean(in[0], 1)}; }},
      {"var", [](const Arrays& in) { return Arrays{var(in[0], 1)}; }},
      {"logsumexp", [](const Arrays& in) { return Arrays{logsumexp(in[0], 1)}; }},
      {"logsumexp of all", [](const Arrays& in) { return Arrays{logsumexp(in[0])}; }},
      {"softmax", [](const Arrays& in) { return Arrays{softmax(in[0])}; }},
      {"log_softmax", [](const Arrays& in) { return Arrays{log_softmax(in[0], 0)}; }},
      {"gelu", [](const Arrays& in) { return Arrays{gelu(in[0])}; }},
      {"gelu with erf", [](const Arrays& in) { return Arrays{gelu(in[0], false)}; }},
      {"silu", [](const Arrays& in) { return Arrays{silu(in[0])}; }},
      {"relu", [](const Arrays& in) { return Arrays{relu(in[0])}; }},
  };
  for (const auto& [name, f] : cases) EXPECT_EQ(check_rules({name, f, {x}}), "");
  const auto norm = [](const Arrays& in) { return Arrays{layer_norm(in[0], in[1], in[2])}; };
  const auto rms = [](const Arrays& in) { return Arrays{rms_norm(in[0], in[1])}; };
  const Array scale = spread_values(2, {4}, 0.5, 2), bias = spread_values(3, {4}, -1, 1);
  EXPECT_EQ(check_rules({"layer_norm", norm, {x, scale, bias}}), "");
  EXPECT_EQ(check_rules({"rms_norm", rms, {x, scale}}), "");
}

TEST(ScanRules, AlongEachDimAndBothWays) {
  for (const Primitive* p : {&cumsum_p, &cumprod_p, &cummax_p, &cummin_p, &cumlogsumexp_p}) {
    for (const Shape& shape : {Shape{1, 2}, Shape{2, 2}, Shape{3, 1}, Shape{4, 2}, Shape{7, 1},
                               Shape{0, 3}, Shape{2, 5}}) {
      for (const int dim : {0, 1}) {
        const bool reverse = (shape[0] + dim) % 2 == 0;
        const auto f = [=](const Arrays& in) {
          return Arrays{bind(*p, in[0], ScanParams(dim, reverse), SourceLine())};
        };
        EXPECT_EQ(check_rules({p->name, f, {spread_values(1, shape, 0.5, 2)}}), "")
            << to_string(shape) << dim;
      }
    }
  }
}

TEST(ScanRules, SecondDerivativesOfCumlogsumexpWhereElementsAreEqual) {
  // x[1] equals x[0], and x[2] the log of the sum of the exponentials before it.
  const Array x = array<double>({0, 0, std::log(2.), 1, -2}, {5});
  const Array weights = array<double>({1, 2, 3, 4, 5}, {5});
  const auto f = [&](Array y) { return sum(cumlogsumexp(y, 0) * weights); };
  const std::vector<double> got = hessian(f)(x).to_vector<double>();
  constexpr double kStep = 1e-5;
  for (int column = 0; column < 5; ++column) {
    const Array step = astype(iota(i32, 5) == column, f64) * kStep;
    const std::vector<double> want =
        ((grad(f)(x + step) - grad(f)(x - step)) / (2 * kStep)).to_vector<double>();
    for (int row = 0; row < 5; ++row)
      EXPECT_NEAR(got[std::size_t(5 * row + column)], want[std::size_t(row)], 1e-8)
          << row << ", " << column;
  }
  // Infinities, whose shares are all or nothing.
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& values :
       {std::vector<double>{-inf, -inf, 1}, std::vector<double>{-inf, 2, -inf}}) {
    const Array g = grad([](Array y) { return cumlogsumexp(y, 0)[2]; })(array(values, {3}));
    EXPECT_EQ(sum(g).item<double>(), 1) << g;
  }
}

TEST(SortRules, TangentsGoWhereElementsGo) {
  const Array x = spread_values(1, {3, 4}, -2, 2), y = spread_values(2, {3, 4}, -2, 2);
  for (const int dim : {0, 1}) {
    const auto together = [dim](const Arrays& in) {
      Arrays operands = in;
      return bind_all(sort_p, operands, SortParams(dim), SourceLine());
    };
    EXPECT_EQ(check_rules({"sort", together, {x}}), "");
    EXPECT_EQ(check_rules({"sort of two", together, {x, y}}), "");
    EXPECT_EQ(check_rules({"sort by integers", together, {astype(x * 100, i32), y}}), "");
    EXPECT_EQ(check_rules({"sort of none", together, {zeros({3, 0}, f64)}}), "");
    const auto places = [dim](const Arrays& in) { return Arrays{argsort(in[0], dim), in[0]}; };
    EXPECT_EQ(check_rules({"argsort", places, {x}}), "");
  }
  for (const int k : {0, 1, 3}) {
    const auto greatest = [k](const Arrays& in) {
      auto [values, at] = top_k(in[0], k);
      return Arrays{values, at};
    };
    EXPECT_EQ(check_rules({"top_k", greatest, {x}}), "") << k;
  }
}

}  // namespace
}  // namespace shmap
