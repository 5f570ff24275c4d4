// The rules of sharding_constraint by numbers: jvp against differences, the transpose against jvp,
// vmap against a loop; eagerly and under jit.
#include <gtest/gtest.h>

#include <cmath>

#include "shmap/shmap.h"

namespace shmap {
namespace {

Array f(const Array& x) {
  const Mesh mesh = make_mesh({8}, {"i"});
  return with_sharding_constraint(sin(x) * x, NamedSharding(mesh, P("i"))) * 2;
}

double dot_of(const Array& a, const Array& b) { return sum(a * b).item<double>(); }

TEST(ShardingConstraintRules, JvpTransposeAndBatching) {
  const Array x = arange(16, f64) / 5.0 - 1.0, v = cos(x * 3), w = exp(-x);
  const auto g = [](Array a) { return f(a); };
  const double h = 1e-5;
  const double slope = (dot_of(f(x + h * v), w) - dot_of(f(x - h * v), w)) / (2 * h);
  auto [y, tangent] = jvp(g, std::tuple{x}, std::tuple{v});
  auto [z, pullback] = vjp(g, x);
  auto [x_bar] = pullback(w);
  EXPECT_NEAR(dot_of(tangent, w), slope, 1e-7);
  EXPECT_NEAR(dot_of(x_bar, v), dot_of(tangent, w), 1e-12);
  const Array under_jit = jit(grad([&](Array a) { return sum(f(a) * w); }))(x);
  EXPECT_NEAR(dot_of(under_jit, v), slope, 1e-7);

  const Array many = stack(std::vector<Array>{x, v, w});
  const std::vector<double> got = vmap(g)(many).to_vector<double>();
  std::vector<double> want;
  for (const Array& one : {x, v, w})
    for (const double value : f(one).to_vector<double>()) want.push_back(value);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-12) << k;
}

}  // namespace
}  // namespace shmap
