// shmap-test: devices
// The first and second derivatives of every collective, numerically: jvp against central
// differences, linearize against jvp, <Jv, w> against <v, J^T w>; with and without checked
// variance, over one axis, several axes, and groups; and the same under jit.
#include <gtest/gtest.h>

#include <cmath>

#include "shmap/shmap.h"
#include "tests/support/device_grids.h"
#include "tests/support/numeric_rules.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using testing::ArrayFn;
using testing::Arrays;
using testing::jvp_values;
using testing::linear_values;
using testing::spread_values;
using testing::vjp_values;
using Numbers = std::vector<double>;

struct Case {
  std::string name;
  std::function<Array(Array)> body;
  Shape shape;  // of the argument
  P in, out;
};

Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }

// Over the axes `a` (n ranks) of the mesh (4, 2); the argument is split over both.
std::vector<Case> cases_over(const Axes& a, int n) {
  const P split(axes("i", "j"));
  const std::string over = " over " + to_string(a);
  const auto varying = [&](const char* name, std::function<Array(Array)> body, Shape shape) {
    return Case{name + over, std::move(body), std::move(shape), split, split};
  };
  std::vector<std::pair<int, int>> ring, some = {{0, n - 1}};
  for (int k = 0; k < n; ++k) ring.emplace_back(k, (k + 1) % n);
  std::vector<int> reversed;
  for (int k = n; k-- > 0;) reversed.push_back(k);
  const std::int64_t m = n;
  return {
      varying("psum", [=](Array x) { return psum(x, a); }, {16, 2}),
      varying("pmean", [=](Array x) { return pmean(x, a); }, {16, 2}),
      varying("pmax", [=](Array x) { return pmax(x, a); }, {16, 2}),
      varying("pmin", [=](Array x) { return pmin(x, a); }, {16, 2}),
      varying("ppermute", [=](Array x) { return ppermute(x, a, ring); }, {16, 2}),
      varying("ppermute of some", [=](Array x) { return ppermute(x, a, some); }, {16, 2}),
      varying("pshuffle", [=](Array x) { return pshuffle(x, a, reversed); }, {16, 2}),
      varying("pswapaxes", [=](Array x) { return pswapaxes(x, a, 1); }, {16, m}),
      varying("all_gather", [=](Array x) { return all_gather(x, a); }, {16, 2}),
      varying("all_gather on dim 1", [=](Array x) { return all_gather(x, a, {.axis = 1}); },
              {16, 2}),
      varying("all_gather tiled",
              [=](Array x) { return all_gather(x, a, {.axis = 1, .tiled = true}); }, {16, 2}),
      varying("all_gather_invariant", [=](Array x) { return all_gather_invariant(x, a); }, {16, 2}),
      varying("all_gather_invariant tiled",
              [=](Array x) { return all_gather_invariant(x, a, {.axis = 1, .tiled = true}); },
              {16, 2}),
      varying("psum_scatter", [=](Array x) { return psum_scatter(x, a); }, {8 * m, 2}),
      varying("psum_scatter tiled",
              [=](Array x) { return psum_scatter(x, a, {.scatter_dimension = 1, .tiled = true}); },
              {16, 2 * m}),
      varying("all_to_all", [=](Array x) { return all_to_all(x, a, 1, 1); }, {16, m}),
      varying("all_to_all to another dim", [=](Array x) { return all_to_all(x, a, 1, 0); },
              {16, m, 2}),
      varying("all_to_all to the last dim", [=](Array x) { return all_to_all(x, a, 0, 2); },
              {8 * m, 3, 2}),
      varying("all_to_all tiled", [=](Array x) { return all_to_all(x, a, 1, 0, {.tiled = true}); },
              {16, m}),
      varying("broadcast_from", [=](Array x) { return broadcast_from(x, a, n - 1); }, {16, 2}),
      {"pbroadcast" + over, [=](Array x) { return pbroadcast(x, a); }, {2, 3}, P(), split},
      {"pscatter" + over, [=](Array x) { return pscatter(x, a); }, {m, 3}, P(), split},
      {"pscatter tiled" + over,
       [=](Array x) { return pscatter(x, a, {.scatter_dimension = 1, .tiled = true}); },
       {2, 3 * m},
       P(),
       split},
  };
}

std::vector<Case> cases_in_groups() {
  const Groups g = {{3, 0}, {1, 2}};
  const P split(axes("i", "j"));
  const auto varying = [&](const char* name, std::function<Array(Array)> body, Shape shape) {
    return Case{std::string(name) + " in groups", std::move(body), std::move(shape), split, split};
  };
  return {
      varying("psum", [=](Array x) { return psum(x, "i", {.axis_index_groups = g}); }, {16, 2}),
      varying("pmean", [=](Array x) { return pmean(x, "i", {.axis_index_groups = g}); }, {16, 2}),
      varying("pmax", [=](Array x) { return pmax(x, "i", {.axis_index_groups = g}); }, {16, 2}),
      varying("pmin", [=](Array x) { return pmin(x, "i", {.axis_index_groups = g}); }, {16, 2}),
      varying("pswapaxes", [=](Array x) { return pswapaxes(x, "i", 0, {.axis_index_groups = g}); },
              {16, 2}),
      varying("all_gather",
              [=](Array x) { return all_gather(x, "i", {.tiled = true, .axis_index_groups = g}); },
              {16, 2}),
      varying("all_gather_invariant",
              [=](Array x) { return all_gather_invariant(x, "i", {.axis_index_groups = g}); },
              {16, 2}),
      varying("psum_scatter",
              [=](Array x) { return psum_scatter(x, "i", {.axis_index_groups = g}); }, {16, 2}),
      varying("all_to_all",
              [=](Array x) { return all_to_all(x, "i", 0, 1, {.axis_index_groups = g}); }, {16, 3}),
  };
}

// A smooth function around the collective, so that its second derivatives are not zero.
ArrayFn mapped(const Case& c, ShardMapOptions options) {
  const auto body = c.body;
  const auto f = shard_map([body](Array x) { return sin(body(x * x)) + body(cos(x)); }, mesh42(),
                           c.in, c.out, options);
  return [f](const Arrays& x) -> Arrays { return {f(x[0])}; };
}

Numbers numbers(const Array& x) { return x.to_vector<double>(); }

void expect_near(const Arrays& got, const Arrays& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].shape(), want[k].shape()) << what;
    const Numbers a = numbers(got[k]), b = numbers(want[k]);
    for (std::size_t e = 0; e < a.size(); ++e)
      ASSERT_NEAR(a[e], b[e], tolerance) << what << ": element " << e;
  }
}

double inner(const Arrays& a, const Arrays& b) {
  double total = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const Numbers x = numbers(a[k]), y = numbers(b[k]);
    for (std::size_t e = 0; e < x.size(); ++e) total += x[e] * y[e];
  }
  return total;
}

Arrays random_like(const Arrays& xs, std::uint32_t seed) {
  Arrays out;
  for (const Array& x : xs) out.push_back(spread_values(seed++, x.shape(), -1, 1));
  return out;
}

Arrays differences(const ArrayFn& f, const Arrays& at, const Arrays& v) {
  constexpr double h = 1e-5;
  Arrays above, below, out;
  for (std::size_t k = 0; k < at.size(); ++k) {
    above.push_back(at[k] + v[k] * h);
    below.push_back(at[k] - v[k] * h);
  }
  const Arrays high = f(above), low = f(below);
  for (std::size_t k = 0; k < high.size(); ++k) out.push_back((high[k] - low[k]) / (2 * h));
  return out;
}

void check(const ArrayFn& f, const Arrays& at, int order) {
  const Arrays v = random_like(at, 7), w = random_like(f(at), 11);
  const Arrays jv = jvp_values(f, at, v);
  expect_near(jv, differences(f, at, v), 1e-7 * order, "jvp against differences");
  expect_near(linear_values(f, at, v), jv, 1e-12, "linearize against jvp");
  const Arrays jtw = vjp_values(f, at, w);
  EXPECT_NEAR(inner(jv, w), inner(v, jtw), 1e-10) << "<Jv, w> against <v, J^T w>";
  if (order == 1 || ::testing::Test::HasFailure()) return;
  check([&](const Arrays& x) { return jvp_values(f, x, v); }, at, order - 1);
  check([&](const Arrays& x) { return vjp_values(f, x, w); }, at, order - 1);
  // Linear in w.
  check([&](const Arrays& u) { return vjp_values(f, at, u); }, w, order - 1);
}

void check_case(const Case& c) {
  const Arrays at = {spread_values(3, c.shape, .2, 1.4)};
  const ArrayFn typed = mapped(c, {}), legacy = mapped(c, {.check_vma = false});
  const Arrays w = random_like(typed(at), 11);
  {
    SCOPED_TRACE(c.name);
    check(typed, at, 2);
  }
  {
    SCOPED_TRACE(c.name + ", variance unchecked");
    check(legacy, at, 2);
  }
  SCOPED_TRACE(c.name);
  const Arrays gradient = vjp_values(typed, at, w);
  expect_near(vjp_values(legacy, at, w), gradient, 1e-12, "legacy against typed");
  const auto under_jit = [&](const ArrayFn& f) {
    return Arrays{jit([&f](Array x, Array u) { return vjp_values(f, {x}, {u})[0]; })(at[0], w[0])};
  };
  expect_near(under_jit(typed), gradient, 1e-12, "under jit");
  expect_near(under_jit(legacy), gradient, 1e-12, "under jit, variance unchecked");
}

TEST(CollectiveRules, OverOneAxis) {
  for (const Case& c : cases_over("i", 4)) check_case(c);
}
TEST(CollectiveRules, OverTheOtherAxis) {
  for (const Case& c : cases_over("j", 2)) check_case(c);
}
TEST(CollectiveRules, OverSeveralAxes) {
  for (const Case& c : cases_over({"i", "j"}, 8)) check_case(c);
  for (const Case& c : cases_over({"j", "i"}, 8)) check_case(c);
}
TEST(CollectiveRules, InGroups) {
  for (const Case& c : cases_in_groups()) check_case(c);
}

// If several ranks have the extremum, each gets an equal share of the derivative.
TEST(CollectiveRules, TiesOfExtremaShare) {
  const auto f = shard_map([](Array x) { return pmax(x, "i"); }, mesh_in_all_processes({4}, {"i"}),
                           P("i"), P());
  const Array x = array<double>({1, 5, 5, 2}, {4});
  EXPECT_EQ(numbers(grad([f](Array v) { return sum(f(v)); })(x)), (Numbers{0, .5, .5, 0}));
}

// Where a rank's piece begins, rank × extent, is computed in i64 where i32 cannot hold it.
TEST(CollectiveRules, LargePiecesBeginWhereTheyShould) {
  const auto program = [](std::int64_t extent) {
    const auto cotangent = [](Array x) {
      const auto [y, pullback] = vjp([](Array v) { return pscatter(v, "i", {.tiled = true}); }, x);
      return std::get<0>(pullback(y));
    };
    const auto f =
        shard_map(cotangent, mesh_in_all_processes({4}, {"i"}), P(), P(), {.check_vma = false});
    return to_string(make_jaxpr(f)(abstract_array(ShapedArray({extent}, f32))));
  };
  const std::string large = program(INT64_C(1) << 34), small = program(1 << 20);
  EXPECT_NE(large.find("i64[]{i} = mul e 4294967296"), std::string::npos) << large;
  EXPECT_NE(small.find("i32[]{i} = mul d 262144"), std::string::npos) << small;
  EXPECT_EQ(small.find("i64"), std::string::npos) << small;
}

// Integers have zero tangents.
TEST(CollectiveRules, IntegersHaveZeros) {
  const auto f = shard_map([](Array x) { return psum(x, "i"); }, mesh_in_all_processes({4}, {"i"}),
                           P("i"), P());
  const Array x = arange(4, i32);
  const auto [y, dy] = jvp(f, std::tuple{x}, std::tuple{x});
  EXPECT_EQ(y.item<std::int32_t>(), 6);
  EXPECT_EQ(to_string(dy.type()), "i32[1]");
  EXPECT_EQ(dy.item<std::int32_t>(), 0);
  const auto ranks = shard_map([](Array v) { return psum(v * astype(axis_index("i"), f64), "i"); },
                               mesh_in_all_processes({4}, {"i"}), P("i"), P());
  EXPECT_EQ(numbers(grad([ranks](Array v) { return sum(ranks(v)); })(ones({4}, f64))),
            (Numbers{0, 1, 2, 3}));
}

}  // namespace
}  // namespace shmap
