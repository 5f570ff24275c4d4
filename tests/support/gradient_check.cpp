#include "tests/support/gradient_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "shmap/shmap.h"

namespace shmap::test {
namespace {

using Numbers = std::vector<double>;

Numbers numbers(const Array& x) { return x.to_vector<double>(); }

double greatest(const Values& xs) {
  double most = 0;
  for (const Array& x : xs)
    for (double v : numbers(x)) most = std::max(most, std::abs(v));
  return most;
}

double inner(const Values& xs, const Values& ys) {
  double total = 0;
  for (std::size_t k = 0; k < xs.size(); ++k) {
    const Numbers x = numbers(xs[k]), y = numbers(ys[k]);
    for (std::size_t e = 0; e < x.size(); ++e) total += x[e] * y[e];
  }
  return total;
}

Values moved(const Values& at, const Values& v, double step) {
  Values out;
  for (std::size_t k = 0; k < at.size(); ++k) out.push_back(at[k] + v[k] * step);
  return out;
}

}  // namespace

void expect_near(const char* what, const Values& got, const Values& want, double relative) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double tolerance = relative * (1 + greatest(want));
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].shape(), want[k].shape()) << what << ": argument " << k;
    const Numbers a = numbers(got[k]), b = numbers(want[k]);
    for (std::size_t e = 0; e < a.size(); ++e)
      ASSERT_NEAR(a[e], b[e], tolerance) << what << ": argument " << k << ", element " << e;
  }
}

void check_gradient(const Loss& typed, const Loss& legacy, const Values& at, const Values& v,
                    bool legacy_jit, bool second_order) {
  const auto [value, gradient] = value_and_grad(typed)(at);
  const double y = value.item<double>();
  const auto [old_value, old_gradient] = value_and_grad(legacy)(at);
  EXPECT_NEAR(old_value.item<double>(), y, 1e-12 * (1 + std::abs(y)));
  expect_near("legacy", old_gradient, gradient, 1e-10);
  const auto [jit_value, jit_gradient] = jit(value_and_grad(typed))(at);
  EXPECT_NEAR(jit_value.item<double>(), y, 1e-12 * (1 + std::abs(y)));
  expect_near("under jit", jit_gradient, gradient, 1e-10);
  if (legacy_jit) expect_near("legacy under jit", jit(grad(legacy))(at), gradient, 1e-10);

  const double slope = inner(gradient, v);
  const double along = jvp(typed, std::tuple{at}, std::tuple{v}).second.item<double>();
  double scale = 1;
  for (std::size_t k = 0; k < v.size(); ++k) scale += greatest({gradient[k]}) * v[k].size();
  EXPECT_NEAR(along, slope, 1e-10 * scale) << "jvp against <gradient, v>";
  constexpr double h = 1e-5;
  const double difference =
      (typed(moved(at, v, h)).item<double>() - typed(moved(at, v, -h)).item<double>()) / (2 * h);
  EXPECT_NEAR(difference, slope, 2e-6 * scale) << "central difference against <gradient, v>";
  if (!second_order) return;
  // The derivative of the gradient along v, forwards over backwards.
  for (const bool checked : {true, false}) {
    const auto gradient_of = [&](const Values& x) {
      return checked ? grad(typed)(x) : grad(legacy)(x);
    };
    const Values bend = jvp(gradient_of, std::tuple{at}, std::tuple{v}).second;
    const Values high = gradient_of(moved(at, v, h)), low = gradient_of(moved(at, v, -h));
    Values want;
    for (std::size_t k = 0; k < at.size(); ++k) want.push_back((high[k] - low[k]) / (2 * h));
    expect_near(checked ? "second order" : "second order, legacy", bend, want,
                1e-5 * (1 + greatest(gradient)));
  }
}

}  // namespace shmap::test
