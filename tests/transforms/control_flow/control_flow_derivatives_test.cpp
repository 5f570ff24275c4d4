// Derivatives of loops and branches: op by op where they run at once, and by the rules of scan,
// while and cond where they are equations, as under jit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/numeric_rules.h"

namespace shmap {
namespace {

using testing::ArrayFn;
using testing::Arrays;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Not;

Array random(const Shape& shape, unsigned seed) {
  return testing::spread_values(seed, shape, -1, 1);
}
ArrayFn as_equations(const ArrayFn& f) {
  return [f](const Arrays& x) { return jit([f](Arrays y) { return f(y); })(x); };
}
void check(const ArrayFn& f, const Arrays& at, int order = 2, bool in_bodies = true) {
  testing::RuleCase c{.name = "at once", .f = f, .at = at, .order = order, .in_bodies = in_bodies};
  EXPECT_EQ(testing::check_rules(c), "");
  c.name = "as equations";
  c.f = as_equations(f);
  EXPECT_EQ(testing::check_rules(c), "");
}
Arrays flat(const std::pair<Array, Array>& r) { return {r.first, r.second}; }
std::size_t occurrences(const std::string& text, const std::string& of) {
  std::size_t n = 0;
  for (std::size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++n;
  return n;
}

// ---- scan and fori_loop

TEST(ScanDerivatives, Recurrence) {
  const ArrayFn f = [](const Arrays& x) {
    return flat(scan(
        [&](Array c, Array v) {
          const Array h = sin(matmul(x[2], c)) + v;
          return std::pair{h, h * v};
        },
        x[0], x[1]));
  };
  check(f, {random({3}, 1), random({4, 3}, 2), random({3, 3}, 3)});
}

TEST(ScanDerivatives, Reverse) {
  const ArrayFn f = [](const Arrays& x) {
    return flat(scan(
        [](Array c, Array v) {
          return std::pair{c * v + v, c * c};
        },
        x[0], x[1], {.reverse = true}));
  };
  check(f, {random({2}, 1), random({5, 2}, 2)});
}

TEST(ScanDerivatives, NoTrips) {
  const ArrayFn f = [](const Arrays& x) {
    return flat(scan([](Array c, Array v) { return std::pair{c * v, c}; }, x[0], x[1]));
  };
  check(f, {random({2}, 1), random({0, 2}, 2)}, 2, false);
}

// The tangent reaches one more carry in each trip.
TEST(ScanDerivatives, CarriesThatBecomeActiveTripByTrip) {
  const ArrayFn f = [](const Arrays& x) {
    const Array zero = zeros({2}, x[0].dtype());
    const Arrays out = fori_loop(
        0, 4,
        [&](Array, Arrays c) {
          return Arrays{c[1] * 2, c[2] + c[0], x[0] * c[2], c[3] + 1};
        },
        Arrays{zero + 1, zero + 2, zero + 3, zero});
    return Arrays{out[0], out[1], out[3]};
  };
  check(f, {random({2}, 1)});
}

TEST(ScanDerivatives, IndicesAndIntegersAreCarriedAlong) {
  const ArrayFn f = [](const Arrays& x) {
    return Arrays{fori_loop(
        1, 5,
        [&](Array i, Array c) {
          return c * dynamic_index_in_dim(x[1], i, 0, false) + astype(i, x[0].dtype());
        },
        x[0])};
  };
  check(f, {random({2}, 1), random({6, 2}, 2)});
}

TEST(ScanDerivatives, NestedLoops) {
  const ArrayFn f = [](const Arrays& x) {
    return flat(scan(
        [&](Array c, Array row) {
          const auto [inner, ys] = scan(
              [&](Array d, Array v) {
                return std::pair{d * v + x[2], d * d};
              },
              c, row);
          return std::pair{inner, sum(ys) * c};
        },
        x[0], x[1]));
  };
  check(f, {random({}, 1), random({3, 2}, 2), random({}, 3)});
}

// Residuals that change from trip to trip are kept for each trip; others are kept once.
TEST(ScanDerivatives, KeepsOnceWhatDoesNotChange) {
  const auto loss = [](Array w, Array x) {
    return sum(scan(
                   [&](Array c, none_t) {
                     return std::pair{tanh(matmul(transpose(w), c)), none};
                   },
                   x, none, {.length = 5})
                   .first);
  };
  const std::string text =
      to_string(make_jaxpr(grad(loss))(ShapedArray({3, 3}, f32), ShapedArray({3}, f32)));
  EXPECT_THAT(text, HasSubstr("f32[5,3]"));
  EXPECT_THAT(text, Not(HasSubstr("f32[5,3,3]")));
}

// Operands that the derivative needs in each trip are not copied.
TEST(ScanDerivatives, KeepsNoCopyOfXs) {
  const auto f = [](Array c, Array xs) {
    return scan([](Array s, Array v) { return std::pair{s * v, none}; }, c, xs).first;
  };
  const std::string text =
      to_string(make_jaxpr(grad(f))(ShapedArray({}, f32), ShapedArray({7}, f32)));
  EXPECT_EQ(occurrences(text, "scan["), 2u) << text;
  EXPECT_THAT(text, Not(HasSubstr("f32[7] ="))) << text;
}

TEST(ScanDerivatives, UnusedResultsCostNothing) {
  const auto f = [](Array c, Array xs) {
    const auto [last, ys] = scan([](Array s, Array v) { return std::pair{s + 1.f, v * v}; }, c, xs);
    return sum(ys);
  };
  const auto [y, linear] = linearize(f, Array(1.f) + 0.f, arange(3));
  const auto [c_bar, xs_bar] = grad<0, 1>(f)(Array(1.f) + 0.f, arange(3));
  EXPECT_EQ(c_bar.item<float>(), 0);
  EXPECT_THAT(xs_bar.to_vector<float>(), ElementsAre(0, 2, 4));
}

// A loop that is linear itself, with an index that is not.
TEST(ScanDerivatives, LinearLoopsAreTransposed) {
  const auto f = [](Array x) {
    return fori_loop(
        0, 3, [&](Array i, Array c) { return c * 2.f + x * astype(i, f32); }, x);
  };
  // ((2x + 0) 2 + x) 2 + 2x
  const auto [x_bar] = linear_transpose(f, ShapedArray({2}, f32))(array<float>({1, 10}, {2}));
  EXPECT_THAT(x_bar.to_vector<float>(), ElementsAre(12, 120));
  const auto [again] = linear_transpose(jit(f), ShapedArray({2}, f32))(array<float>({1, 10}, {2}));
  EXPECT_THAT(again.to_vector<float>(), ElementsAre(12, 120));
}

// ---- while_loop

TEST(WhileDerivatives, ForwardAndEagerlyBackward) {
  const ArrayFn f = [](const Arrays& x) {
    const auto out = while_loop([](std::pair<Array, Array> c) { return c.first < 4; },
                                [&](std::pair<Array, Array> c) {
                                  return std::pair{c.first + 1, sin(c.second) * x[1]};
                                },
                                std::pair{Array(0) + 0, x[0]});
    return Arrays{out.second};
  };
  const Arrays at{random({2}, 1), random({2}, 2)};
  EXPECT_EQ(testing::check_rules({.name = "at once", .f = f, .at = at}), "");
  const Arrays v{random({2}, 3), random({2}, 4)};
  const std::vector<double> want = testing::jvp_values(f, at, v)[0].to_vector<double>();
  EXPECT_EQ(testing::jvp_values(as_equations(f), at, v)[0].to_vector<double>(), want);
  EXPECT_EQ(testing::linear_values(as_equations(f), at, v)[0].to_vector<double>(), want);
}

TEST(WhileDerivatives, BackwardNeedsAKnownNumberOfTrips) {
  const auto f = [](Array x) {
    return while_loop([](Array c) { return c < 10.f; }, [](Array c) { return c * c; }, x);
  };
  EXPECT_FLOAT_EQ(grad(f)(Array(3.f) + 0.f).item<float>(), 4 * 27);  // ((x^2)^2)' at once
  test::expect_error<TypeError>([&] { grad(jit(f))(Array(3.f) + 0.f); },
                                {"while", "number of trips", "scan"});
  test::expect_error<TypeError>([&] { jit(grad(f))(Array(3.f) + 0.f); },
                                {"while", "number of trips", "scan"});
}

TEST(WhileDerivatives, WithoutTangentsItIsNoMatter) {
  const auto f = [](Array x) {
    const Array n =
        while_loop([](Array c) { return c < 10.f; }, [](Array c) { return c * 2.f; }, Array(1.f));
    return x * n;
  };
  EXPECT_EQ(jit(grad(f))(Array(3.f) + 0.f).item<float>(), 16);
}

// ---- cond and switch_

Array scalar_bool(bool v) { return array<bool>({v}, Shape({})); }

TEST(CondDerivatives, Branches) {
  for (bool taken : {true, false}) {
    const ArrayFn f = [taken](const Arrays& x) {
      return cond(
          scalar_bool(taken),
          [&](Array a, Array b) {
            return Arrays{sin(a) * b, astype(sum(a) > 0, i32), a};
          },
          [&](Array a, Array) {
            return Arrays{a * a * x[2], array({7}, Shape({})), zeros({3}, a.dtype())};
          },
          x[0], x[1]);
    };
    check(f, {random({3}, 1), random({3}, 2), random({3}, 3)}, 2, false);
  }
}

// The predicate is an argument, so that both branches are in the program.
TEST(CondDerivatives, UnderJit) {
  const auto f = [](Array p, Array x, Array w) {
    return sum(cond(
        p, [&](Array a) { return tanh(a * w); }, [&](Array a) { return a * a; }, x));
  };
  const Array x = random({3}, 1), w = random({3}, 2);
  const auto eager = grad<1, 2>(f);
  const auto jitted = jit(grad<1, 2>(f));
  for (bool taken : {true, false}) {
    const auto [x_bar, w_bar] = eager(scalar_bool(taken), x, w);
    const auto [x_jit, w_jit] = jitted(scalar_bool(taken), x, w);
    EXPECT_EQ(x_bar.to_vector<double>(), x_jit.to_vector<double>()) << taken;
    EXPECT_EQ(w_bar.to_vector<double>(), w_jit.to_vector<double>()) << taken;
  }
}

TEST(CondDerivatives, Switch) {
  for (int index : {0, 1, 2}) {
    const ArrayFn f = [index](const Arrays& x) {
      return Arrays{switch_(array({index}, Shape({})),
                            {[&](Array a) { return a * x[1]; }, [](Array a) { return exp(a); },
                             [](Array a) { return zeros({2}, a.dtype()); }},
                            x[0])};
    };
    check(f, {random({2}, 1), random({2}, 2)}, 2, false);
  }
}

TEST(CondDerivatives, InsideALoopAndAroundOne) {
  const ArrayFn inside = [](const Arrays& x) {
    return flat(scan(
        [&](Array c, Array v) {
          const Array next = cond(
              sum(v) > 0, [&](Array a) { return a * x[2]; }, [&](Array a) { return a + v; }, c);
          return std::pair{next, next * v};
        },
        x[0], x[1]));
  };
  check(inside, {random({2}, 1), random({5, 2}, 2), random({2}, 3)}, 1);
  const ArrayFn around = [](const Arrays& x) {
    return Arrays{cond(
        scalar_bool(true),
        [&](Array a) {
          return fori_loop(
              0, 3, [&](Array, Array c) { return sin(c) * x[1]; }, a);
        },
        [](Array a) { return a; }, x[0])};
  };
  check(around, {random({2}, 1), random({2}, 2)}, 1);
}

// ---- in the bodies of shard_map

Mesh mesh_i() { return make_mesh({4}, {"i"}); }

// Each device's own block decides its branch; w is the same on all.
Array decided_apart(const Array& x, const Array& w) {
  return shard_map(
      [w](Array b) {
        return cond(
            sum(b) > 3.f, [&](Array a) { return a * w; }, [](Array a) { return a * a; }, b);
      },
      mesh_i(), P("i"), P("i"))(x);
}
std::vector<float> decided_gradient_of_w() {
  // Blocks {0, 1}, {2, 3}, {4, 5}, {6, 7}: all but the first are multiplied by w.
  return {2 + 4 + 6, 3 + 5 + 7};
}
std::vector<float> decided_gradient_of_x() { return {0, 2, 10, 20, 10, 20, 10, 20}; }

TEST(VaryingDecisions, GradientOfWhatABranchClosesOver) {
  const auto loss = [](Array x, Array w) { return sum(decided_apart(x, w)); };
  const Array x = arange(8), w = array<float>({10, 20}, {2});
  const auto check_values = [&](const std::tuple<Array, Array>& g) {
    EXPECT_EQ(std::get<0>(g).to_vector<float>(), decided_gradient_of_x());
    EXPECT_EQ(std::get<1>(g).to_vector<float>(), decided_gradient_of_w());
  };
  check_values(grad<0, 1>(loss)(x, w));
  const auto jitted = jit(grad<0, 1>(loss));
  for (int call = 0; call < 3; ++call) check_values(jitted(x, w));
  const auto inside = grad<0, 1>(jit(loss));
  check_values(inside(x, w));
  // There is one sum over devices, outside of the branches.
  const CostAnalysis cost = cost_analysis(make_jaxpr(grad<1>(loss))(x, w));
  std::vector<std::string> names;
  for (const auto& c : cost.collectives) names.push_back(c.primitive);
  EXPECT_EQ(std::count(names.begin(), names.end(), "psum"), 1);
}

TEST(VaryingDecisions, GradientTakenInTheBody) {
  const Array w = array<float>({10, 20}, {2});
  const auto body = [&](Array b) {
    const auto loss = [&](Array v) {
      return sum(cond(
          sum(b) > 3.f, [&](Array a) { return a * v; }, [](Array a) { return a * a; }, b));
    };
    return grad(loss)(w);
  };
  const auto run = [&](Array x) { return shard_map(body, mesh_i(), P("i"), P())(x); };
  EXPECT_EQ(run(arange(8)).to_vector<float>(), decided_gradient_of_w());
  const auto jitted = jit(run);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(jitted(arange(8)).to_vector<float>(), decided_gradient_of_w());
}

TEST(VaryingDecisions, LoopsOfUnlikeTripCounts) {
  // Each device multiplies by w as often as its block says.
  const auto f = [](Array n, Array x, Array w) {
    return shard_map(
        [w](Array m, Array b) {
          const auto out = while_loop([&](std::pair<Array, Array> c) { return c.first < sum(m); },
                                      [&](std::pair<Array, Array> c) {
                                        return std::pair{c.first + 1, c.second * w};
                                      },
                                      std::pair{Array(0) + 0, b});
          return out.second;
        },
        mesh_i(), {P("i"), P("i")}, P("i"))(n, x);
  };
  const Array n = array<int>({0, 1, 2, 3}, {4}), x = ones({4});
  const Array w = array<float>({3}, Shape({}));
  const auto along_w = [&](Array v) { return f(n, x, v); };
  const std::vector<float> want{0, 1, 6, 27};  // n w^(n-1)
  const auto one = std::tuple{Array(1.f) + 0.f};
  EXPECT_EQ(jvp(along_w, std::tuple{w}, one).second.to_vector<float>(), want);
  EXPECT_EQ(jvp(jit(along_w), std::tuple{w}, one).second.to_vector<float>(), want);
  const auto [y, linear] = linearize(along_w, w);
  EXPECT_EQ(linear(std::get<0>(one)).to_vector<float>(), want);
}

// A parameter that a loop closes over is summed over the devices once, after all trips.
TEST(LoopsInBodies, OneSumForAParameter) {
  const auto loss = [](Array x, Array w) {
    const auto body = [w](Array b) {
      const Array last = fori_loop(
          0, 5, [&](Array, Array c) { return c * w; }, b);
      return psum(sum(last), "i");
    };
    return shard_map(body, mesh_i(), P("i"), P())(x);
  };
  const Array x = arange(4), w = array<float>({2}, Shape({}));
  const float want = (0 + 1 + 2 + 3) * 5 * 16;
  EXPECT_EQ(grad<1>(loss)(x, w).item<float>(), want);
  EXPECT_EQ(jit(grad<1>(loss))(x, w).item<float>(), want);
  EXPECT_EQ(grad<1>(jit(loss))(x, w).item<float>(), want);
  for (const auto& program :
       {make_jaxpr(grad<1>(loss))(x, w), make_jaxpr(grad<1>(jit(loss)))(x, w)}) {
    std::size_t sums = 0;
    for (const auto& c : cost_analysis(program).collectives) sums += c.primitive == "psum";
    EXPECT_EQ(sums, 2u) << to_string(program);  // of the loss, and of its gradient
  }
}

TEST(LoopsInBodies, WithoutTrips) {
  const auto f = [](Array x) {
    return shard_map(
        [](Array b) {
          const auto [c, ys] = scan(
              [](Array s, Array v) {
                return std::pair{s * v, s * s};
              },
              b, zeros({0, 2}));
          return c + sum(ys);
        },
        mesh_i(), P("i"), P("i"))(x);
  };
  const auto one = std::tuple{ones({8})};
  EXPECT_EQ(jvp(f, std::tuple{arange(8)}, one).second.to_vector<float>(),
            std::vector<float>(8, 1.f));
  EXPECT_EQ(grad([&](Array x) { return sum(f(x)); })(arange(8)).to_vector<float>(),
            std::vector<float>(8, 1.f));
}

// A loop over unsharded layers of blocks that are: its gradient is that of one device.
TEST(LoopsInBodies, AsOnOneDevice) {
  const Array x = random({8, 3}, 1), ws = random({4, 3, 3}, 2);
  const auto net = [](Array h, Array layers) {
    return scan(
               [](Array c, Array w) {
                 return std::pair{tanh(matmul(c, w)), none};
               },
               h, layers)
        .first;
  };
  const auto one = [&](Array h, Array w) { return sum(square(net(h, w))); };
  const auto many = [&](Array h, Array w) {
    return shard_map([&](Array b, Array l) { return psum(sum(square(net(b, l))), "i"); }, mesh_i(),
                     {P("i"), P()}, P())(h, w);
  };
  const std::vector<double> want = grad<1>(one)(x, ws).to_vector<double>();
  const auto near = [&](const Array& got) {
    const std::vector<double> g = got.to_vector<double>();
    for (std::size_t k = 0; k < g.size(); ++k) EXPECT_NEAR(g[k], want[k], 1e-12);
  };
  near(jit(grad<1>(one))(x, ws));
  near(grad<1>(many)(x, ws));
  near(jit(grad<1>(many))(x, ws));
  near(grad<1>(jit(many))(x, ws));
}

// ---- modes of variance, and other transforms

// Also with explicit casts, and without variance types.
TEST(LoopsInBodies, InEveryMode) {
  const Array x = arange(4), w = array<float>({2}, Shape({}));
  const float want = (0 + 1 + 2 + 3) * 5 * 16;
  for (const ShardMapOptions& options :
       {ShardMapOptions{}, ShardMapOptions{.auto_pbroadcast = false},
        ShardMapOptions{.check_vma = false}}) {
    const bool explicit_casts = options.check_vma;
    const auto loss = [=](Array a, Array v) {
      const auto body = [=](Array b, Array p) {
        if (explicit_casts) p = pbroadcast(p, "i");
        const Array last = fori_loop(
            0, 5, [&](Array, Array c) { return c * p; }, b);
        return psum(sum(last), "i");
      };
      return shard_map(body, mesh_i(), {P("i"), P()}, P(), options)(a, v);
    };
    EXPECT_EQ(grad<1>(loss)(x, w).item<float>(), want);
    EXPECT_EQ(jit(grad<1>(loss))(x, w).item<float>(), want);
    EXPECT_EQ(grad<1>(jit(loss))(x, w).item<float>(), want);
  }
}

TEST(VaryingDecisions, InEveryMode) {
  const Array x = arange(8), w = array<float>({10, 20}, {2});
  for (const ShardMapOptions& options :
       {ShardMapOptions{}, ShardMapOptions{.auto_pbroadcast = false},
        ShardMapOptions{.check_vma = false}}) {
    const bool explicit_casts = options.check_vma;
    const auto loss = [=](Array a, Array v) {
      const auto body = [=](Array b, Array p) {
        if (explicit_casts) p = pbroadcast(p, "i");
        return cond(
            sum(b) > 3.f, [&](Array c) { return c * p; }, [](Array c) { return c * c; }, b);
      };
      return sum(shard_map(body, mesh_i(), {P("i"), P()}, P("i"), options)(a, v));
    };
    const auto check_values = [&](const std::tuple<Array, Array>& g) {
      EXPECT_EQ(std::get<0>(g).to_vector<float>(), decided_gradient_of_x());
      EXPECT_EQ(std::get<1>(g).to_vector<float>(), decided_gradient_of_w());
    };
    check_values(grad<0, 1>(loss)(x, w));
    check_values(jit(grad<0, 1>(loss))(x, w));
    check_values(grad<0, 1>(jit(loss))(x, w));
  }
}

// The transpose of a cast in a branch is a sum over devices that take different branches; it comes
// after the branches.
TEST(VaryingDecisions, CastsInsideOfABranch) {
  const Array x = arange(8), w = array<float>({10, 20}, {2});
  for (const bool auto_pbroadcast : {true, false}) {
    const auto loss = [=](Array a, Array v) {
      const auto body = [](Array b, Array p) {
        return cond(
            sum(b) > 3.f, [&](Array c) { return c * pbroadcast(p, "i"); },
            [](Array c) { return c * c; }, b);
      };
      return sum(shard_map(body, mesh_i(), {P("i"), P()}, P("i"),
                           {.auto_pbroadcast = auto_pbroadcast})(a, v));
    };
    const auto check_values = [&](const std::tuple<Array, Array>& g) {
      EXPECT_EQ(std::get<0>(g).to_vector<float>(), decided_gradient_of_x());
      EXPECT_EQ(std::get<1>(g).to_vector<float>(), decided_gradient_of_w());
    };
    check_values(grad<0, 1>(loss)(x, w));
    check_values(jit(grad<0, 1>(loss))(x, w));
    check_values(grad<0, 1>(jit(loss))(x, w));
  }
}

// Along an axis on which the decision does not vary, devices may meet in the branches.
TEST(VaryingDecisions, CollectivesOverAnotherAxisStayInTheBranches) {
  const Mesh mesh = make_mesh({2, 2}, {"i", "j"});
  const Array w = array<float>({1, 2}, {2});
  const auto loss = [&](Array x, Array v) {
    const auto body = [](Array b, Array p) {
      return cond(
          axis_index("i") > 0, [&](Array c) { return psum(c * p, "j"); },
          [&](Array c) { return psum(c, "j") * 2.f; }, b);
    };
    return sum(shard_map(body, mesh, {P(axes("i", "j")), P("j")}, P("i"))(x, v));
  };
  const Array x = arange(4);
  const auto check_values = [&](const std::tuple<Array, Array>& g) {
    EXPECT_EQ(std::get<0>(g).to_vector<float>(), (std::vector<float>{2, 2, 1, 2}));
    EXPECT_EQ(std::get<1>(g).to_vector<float>(), (std::vector<float>{2, 3}));
  };
  check_values(grad<0, 1>(loss)(x, w));
  check_values(jit(grad<0, 1>(loss))(x, w));
  check_values(grad<0, 1>(jit(loss))(x, w));
}

TEST(ScanDerivatives, WeakAndLiteralCarries) {
  const auto f = [](Array x) {
    const auto out = fori_loop(
        0, 4,
        [&](Array i, std::pair<Array, Array> c) {
          return std::pair{c.first + x * astype(i, f32), c.second * 2};
        },
        std::pair{Array(0), Array(1.f)});
    return out.first * out.second;
  };
  const Array x = Array(3.f) + 0.f;
  EXPECT_EQ(grad(f)(x).item<float>(), 6 * 16);
  EXPECT_EQ(jit(grad(f))(x).item<float>(), 6 * 16);
  EXPECT_EQ(grad(jit(f))(x).item<float>(), 6 * 16);
}

TEST(ScanDerivatives, OfManyAndTwice) {
  const auto f = [](Array x) {
    return sum(scan(
                   [](Array c, Array v) {
                     const Array n = c * v + c;
                     return std::pair{n, n * n};
                   },
                   ones({}), x)
                   .second);
  };
  const Array x = reshape(arange(6), {2, 3});
  const Array each = vmap(grad(jit(f)))(x);
  // A product with the Hessian: of the gradient, and along a tangent.
  const Array v = array<float>({1, -2, 3}, {3});
  const auto product = [v](auto g) { return [v, g](Array y) { return sum(grad(g)(y) * v); }; };
  for (int row : {0, 1}) {
    EXPECT_EQ(each[row].to_vector<float>(), grad(f)(x[row]).to_vector<float>());
    const std::vector<float> want = grad(product(f))(x[row]).to_vector<float>();
    EXPECT_EQ(jit(grad(product(f)))(x[row]).to_vector<float>(), want);
    EXPECT_EQ(grad(product(jit(f)))(x[row]).to_vector<float>(), want);
    EXPECT_EQ(jvp(grad(jit(f)), std::tuple{x[row]}, std::tuple{v}).second.to_vector<float>(), want);
  }
}

// The residuals of all trips are one array per value, split as the values are: nothing is moved.
TEST(ScanDerivatives, ShardedCarriesStaySharded) {
  const Array x = device_put(reshape(arange(16), {8, 2}), NamedSharding(mesh_i(), P("i")));
  const auto f = [](Array c) {
    return sum(fori_loop(
        0, 3, [](Array, Array v) { return sin(v) * v; }, c));
  };
  const auto jitted = jit(grad(f));
  const Array g = jitted(x);
  EXPECT_EQ(g.sharding(), x.sharding());
  reset_counters();
  jitted(x).block_until_ready();
  EXPECT_EQ(counters().collective_bytes, 0);
  const std::vector<float> got = g.to_vector<float>(), want = grad(f)(x).to_vector<float>();
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-4f);
}

}  // namespace
}  // namespace shmap
