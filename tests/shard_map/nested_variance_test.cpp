// shmap-test: devices
// A body inside of another, of which one tracks variance and the other does not: what the cotangent
// of a value is that does not vary over an axis of the outer body differs between the two.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

using Body = std::function<Array(Array, Array)>;

struct Case {
  const char* name;
  Body body;  // of w, the same on all devices, and a block of x
  P inner_out, outer_out;
};

const P along_i = P("i"), along_j = P(none, "j");

const std::vector<Case>& cases() {
  static const auto& all = *new std::vector<Case>{
      {"no collective", [](Array w, Array x) { return sin(w * x); }, along_j, along_i},
      {"w alone", [](Array w, Array) { return w * w; }, P(), P()},
      {"psum over both", [](Array w, Array x) { return psum(sin(w * x), axes("i", "j")); }, P(),
       P()},
      {"pmean over both", [](Array w, Array x) { return pmean(sin(w * x), axes("i", "j")); }, P(),
       P()},
      {"psum over the inner axis", [](Array w, Array x) { return psum(sin(w * x), "j"); }, P(),
       along_i},
      {"psum over the outer axis", [](Array w, Array x) { return psum(sin(w * x), "i") * w; },
       along_j, P()},
      {"psum of w", [](Array w, Array x) { return psum(sin(w), "i") * psum(w, "j") * x; }, along_j,
       along_i},
      {"pmax", [](Array w, Array x) { return pmax(sin(w * x), "i"); }, along_j, P()},
      {"all_gather",
       [](Array w, Array x) { return all_gather(sin(w * x), "i", {.axis = 0, .tiled = true}) * w; },
       along_j, along_i},
      {"all_gather_invariant",
       [](Array w, Array x) {
         return all_gather_invariant(sin(w * x), "i", {.axis = 0, .tiled = true}) * w;
       },
       along_j, P()},
      {"pscatter",
       [](Array w, Array x) {
         return pscatter(concatenate({w, w * w, sin(w), w}, 0), "i", {.tiled = true}) * x;
       },
       along_j, along_i},
      {"psum_scatter",
       [](Array w, Array x) {
         return psum_scatter(concatenate({w * x, w * w, sin(w), w}, 0), "i", {.tiled = true}) * x;
       },
       along_j, along_i},
      {"ppermute",
       [](Array w, Array x) { return ppermute(sin(w * x), "i", ring_permutation("i", 1)) * w; },
       along_j, along_i},
      {"broadcast_from", [](Array w, Array x) { return broadcast_from(sin(w * x), "i", 2) * w; },
       along_j, P()},
      {"scan",
       [](Array w, Array x) {
         const auto trip = [&](Array c, Array) {
           return std::pair{pbroadcast(psum(c * w, "i"), "i") * 0.3 + x, c};
         };
         return scan(trip, w * x, arange(3)).first;
       },
       along_j, along_i},
      {"cond",
       [](Array w, Array x) {
         return cond(
             sum(x) > 0., [&](Array v) { return sin(v) * x; }, [](Array v) { return v * v; }, w);
       },
       along_j, along_i},
      {"jit",
       [](Array w, Array x) { return jit([](Array a, Array b) { return sin(a * b); })(w, x); },
       along_j, along_i},
      {"checkpoint",
       [](Array w, Array x) {
         return psum(
             checkpoint([](Array a, Array b) { return sin(a * b) * psum(a * b, "i"); })(w, x),
             axes("i", "j"));
       },
       P(), P()},
  };
  return all;
}

double number(const Array& x) { return sum(x).item<double>(); }

// The derivative of sum(cos(result)) along w, which is 1 x 1.
using Loss = std::function<Array(Array)>;

void expect_derivatives(const Loss& loss, const Array& w) {
  const double h = 1e-5;
  const double slope = (number(loss(w + h)) - number(loss(w - h))) / (2 * h);
  const auto near = [](double got, double want, const char* what) {
    EXPECT_NEAR(got, want, 1e-6 * (1 + std::abs(want))) << what;
  };
  near(number(grad(loss)(w)), slope, "grad");
  near(number(grad(Loss(jit(loss)))(w)), slope, "grad of jit");
  near(number(grad(Loss(checkpoint(loss)))(w)), slope, "grad of checkpoint");
  near(number(jvp(loss, std::tuple{w}, std::tuple{ones_like(w)}).second), slope, "jvp");
  const auto staged = jit(grad(loss));
  for (int call = 0; call < 3; ++call) near(number(staged(w)), slope, "grad under jit");

  const Loss first = [&](Array v) { return sum(grad(loss)(v)); };
  const double curvature = (number(first(w + h)) - number(first(w - h))) / (2 * h);
  near(number(grad(first)(w)), curvature, "grad of grad");
  near(number(jit(grad(first))(w)), curvature, "grad of grad under jit");
  near(number(jvp(first, std::tuple{w}, std::tuple{ones_like(w)}).second), curvature,
       "jvp of grad");
}

class NestedVariance : public testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  const Mesh mesh_ = make_mesh({4, 2}, axes("i", "j"));
  const Array x_ = reshape(cos(arange(8, f64) * 1.3), {4, 2});
  const Array w_ = full({1, 1}, 0.7, f64);
  const ShardMapOptions outer_{.check_vma = GetParam().first, .axis_names = "i"};
  const ShardMapOptions inner_{.check_vma = GetParam().second, .axis_names = "j"};
};

TEST_P(NestedVariance, WAndXAreArguments) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto outer = [&](Array w, Array x) {
      return shard_map(c.body, mesh_, {P(), along_j}, c.inner_out, inner_)(w, x);
    };
    expect_derivatives(
        [&](Array w) {
          return sum(cos(shard_map(outer, mesh_, {P(), along_i}, c.outer_out, outer_)(w, x_)));
        },
        w_);
  }
}

TEST_P(NestedVariance, TheBodiesCloseOverW) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto loss = [&](Array w) {
      const auto outer = [&](Array x) {
        const auto inner = [&](Array b) { return c.body(w, b); };
        return shard_map(inner, mesh_, along_j, c.inner_out, inner_)(x);
      };
      return sum(cos(shard_map(outer, mesh_, along_i, c.outer_out, outer_)(x_)));
    };
    expect_derivatives(loss, w_);
  }
}

// A value of the outer body is an argument of the inner one, closed over by it, and used beside it.
TEST_P(NestedVariance, AValueOfTheOuterBody) {
  const auto loss = [&](Array w) {
    const auto outer = [&](Array v, Array x) {
      const Array y = v * v;
      const auto inner = [&](Array a, Array b) { return psum(sin(a * b) * v, "i") + y * b; };
      const Array z = shard_map(inner, mesh_, {P(), along_j}, along_j, inner_)(y, x);
      return z * y + x;
    };
    return sum(cos(shard_map(outer, mesh_, {P(), along_i}, along_i, outer_)(w, x_)));
  };
  expect_derivatives(loss, w_);
}

TEST_P(NestedVariance, AGradientInTheOuterBody) {
  const auto loss = [&](Array w) {
    const auto outer = [&](Array v, Array x) {
      const auto of_block = [&](Array b) {
        const auto inner = [](Array a, Array c) { return psum(sin(a * c), "j"); };
        return sum(shard_map(inner, mesh_, {P(), along_j}, P(), inner_)(v, b));
      };
      return grad(of_block)(x) * x;
    };
    return sum(cos(shard_map(outer, mesh_, {P(), along_i}, along_i, outer_)(w, x_)));
  };
  expect_derivatives(loss, w_);
}

INSTANTIATE_TEST_SUITE_P(Checks, NestedVariance,
                         testing::Values(std::pair{true, true}, std::pair{true, false},
                                         std::pair{false, true}, std::pair{false, false}),
                         [](const auto& info) {
                           const auto word = [](bool checks) {
                             return checks ? "Checked" : "Unchecked";
                           };
                           return std::string(word(info.param.second)) + "In" +
                                  word(info.param.first);
                         });

}  // namespace
}  // namespace shmap
