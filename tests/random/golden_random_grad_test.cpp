// Derivatives of samplers that draw until they accept, beside JAX's: eagerly and under jit, and
// with parameters that are split over devices; of second order, in bodies and under vmap.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "shmap/shmap.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using testing::GoldenCase;
using Arrays = std::vector<Array>;

// The cotangents of the parameters, from the key's words, the parameters and the cotangent.
Arrays call(const GoldenCase& c, const Arrays& in) {
  const auto& p = c.params;
  const std::string what = p.text("call");
  const random::Key key(extend::random_wrap(in[0]));
  const Shape shape(p.ints("shape"));
  const DType dtype = p.text("dtype") == "f64" ? f64 : f32;
  if (what == "beta") {
    auto [y, pull] =
        vjp([&](Array a, Array b) { return random::beta(key, a, b, shape, dtype); }, in[1], in[2]);
    auto [a_bar, b_bar] = pull(in[3]);
    return {a_bar, b_bar};
  }
  auto [y, pull] = vjp(
      [&](Array a) {
        if (what == "gamma") return random::gamma(key, a, shape, dtype);
        if (what == "loggamma") return random::loggamma(key, a, shape, dtype);
        if (what == "dirichlet") return random::dirichlet(key, a, shape, dtype);
        if (what == "generalized_normal") return random::generalized_normal(key, a, shape, dtype);
        if (what == "ball") return random::ball(key, p.integer("d"), a, shape, dtype);
        throw ValueError("the golden file calls no sampler: " + what);
      },
      in[1]);
  auto [a_bar] = pull(in[2]);
  return {a_bar};
}

TEST(GoldenRandomGrad, IsJaxs) { testing::expect_golden("random_grad", call); }
Array draw(Array a) { return random::gamma(random::key(5), a, a.shape(), a.dtype()); }
Array draw_log(Array a) { return random::loggamma(random::key(5), a, a.shape(), a.dtype()); }
Array slope(Array a) { return std::get<1>(jvp(draw, std::tuple{a}, std::tuple{ones_like(a)})); }

TEST(RandomGrad, OfLogarithmsIsOverTheSample) {
  const Array a = array<double>({0.3, 0.9, 2, 7, 40}, {5});
  // One key draws a sample and its logarithm.
  const Array log_slope = std::get<1>(jvp(draw_log, std::tuple{a}, std::tuple{ones_like(a)}));
  const std::vector<double> want = (slope(a) / draw(a)).to_vector<double>();
  const std::vector<double> got = log_slope.to_vector<double>();
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-9 * std::abs(want[i])) << i;
}

TEST(RandomGrad, OfTinyAndLargeParameters) {
  // log(x) / a is fixed in the limit of small a, where x is far below the smallest number.
  const Array small = array<float>({1e-4f, 1e-3f}, {2});
  const Array log_slope =
      std::get<1>(jvp(draw_log, std::tuple{small}, std::tuple{ones_like(small)}));
  const std::vector<float> want = (-draw_log(small) / small).to_vector<float>();
  const std::vector<float> got = log_slope.to_vector<float>();
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(std::isfinite(got[i])) << i;
    EXPECT_NEAR(got[i], want[i], 1e-2f * std::abs(want[i])) << i;
  }
  // For large a the sample is nearly a + z sqrt(a), and its slope 1 + z / (2 sqrt(a)): below and
  // above the limit from which on the closed form is used.
  const Array large = array<double>({9e5, 1.1e6, 1e8, 1e12}, {4});
  const Array z = (draw(large) - large) / sqrt(large);
  const std::vector<double> near = (1 + z / (2 * sqrt(large))).to_vector<double>();
  const std::vector<double> of_large = slope(large).to_vector<double>();
  for (std::size_t i = 0; i < near.size(); ++i) EXPECT_NEAR(of_large[i], near[i], 1e-5) << i;
  EXPECT_NEAR(of_large[2], near[2], 1e-7);
}

TEST(RandomGrad, ClosedFormOfLargeParametersIsTheSeries) {
  // The same quantile's slope by both: the sample of 999999.9 and of 1000000.1 have one z.
  const Array a = array<double>({999999.9}, {1}), b = array<double>({1000000.1}, {1});
  EXPECT_NEAR(slope(a)[0].item<double>(), slope(b)[0].item<double>(), 1e-9);
}

TEST(RandomGrad, HalfTypes) {
  for (const DType dtype : {f16, bf16}) {
    const Array a = astype(array<float>({0.5f, 2, 9}, {3}), dtype);
    const Array got = slope(a);
    EXPECT_EQ(got.dtype(), dtype);
    for (const float v : astype(got, f32).to_vector<float>()) EXPECT_TRUE(v > 0 && v < 5) << v;
  }
}

TEST(RandomGrad, UnderVmapAndInBodies) {
  const Array a = array<float>({0.5f, 1, 2, 3, 5, 8, 13, 21}, {4, 2});
  const Array keys = random::split(random::key(9), 4);
  const auto one = [](Array k, Array x) {
    return grad([&](Array v) { return sum(square(random::gamma(k, v))); })(x);
  };
  const Array mapped = vmap(one)(keys, a);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(mapped[i].to_vector<float>(), one(keys[i], a[i]).to_vector<float>()) << i;
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto body = [&](Array k, Array x) { return one(k[0], x[0])[{none, range()}]; };
  const auto f = shard_map(body, mesh, {P("i"), P("i")}, P("i"));
  EXPECT_EQ(f(keys, a).to_vector<float>(), mapped.to_vector<float>());
  EXPECT_EQ(jit(f)(keys, a).to_vector<float>(), mapped.to_vector<float>());
  // Forward over forward; what reverse mode would have to keep of the loops has no bound, in JAX
  // neither.
  const Array second = std::get<1>(jvp(slope, std::tuple{a}, std::tuple{ones_like(a)}));
  for (const float v : second.to_vector<float>()) EXPECT_TRUE(std::isfinite(v));
}

TEST(RandomGrad, OfWhatIsSplitOverDevices) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array a = linspace(0.5f, 30.f, 64);
  const auto loss = [](Array v) { return sum(square(random::loggamma(random::key(3), v))); };
  const std::vector<float> want = grad(loss)(a).to_vector<float>();
  const Array split = device_put(a, NamedSharding(mesh, P(axes("i", "j"))));
  const Array got = grad(loss)(split);
  EXPECT_EQ(got.sharding(), split.sharding());
  for (const Array& g : {got, jit(grad(loss))(split)}) {
    const std::vector<float> values = g.to_vector<float>();
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(values[i], want[i], 1e-4f * (1 + std::abs(want[i]))) << i;
  }
}

TEST(RandomGrad, OfAFactorBesideASample) {
  const auto scaled = [&](Array s) { return sum(s * draw(ones({2}))); };
  EXPECT_EQ(grad(scaled)(Array(1.f)).item<float>(), sum(draw(ones({2}))).item<float>());
}

}  // namespace
}  // namespace shmap
