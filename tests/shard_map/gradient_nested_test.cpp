// shmap-test: devices
// Gradients of mapped functions with other functions inside: jitted ones, loops, branches and
// custom rules, over what they are given and what they close over.
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/communication.h"

namespace shmap {
namespace {

using test::expect_collectives;
using Floats = std::vector<float>;

constexpr ShardMapOptions legacy{.check_vma = false};

Mesh mesh8() { return make_mesh({8}, {"i"}); }

template <class F, class... A>
void expect_gradient(const F& typed, const F& unchecked, const Floats& want, const A&... args) {
  for (const F* f : {&typed, &unchecked}) {
    const std::string mode = f == &typed ? "typed" : "unchecked";
    EXPECT_EQ(grad(*f)(args...).template to_vector<float>(), want) << mode;
    EXPECT_EQ(jit(grad(*f))(args...).template to_vector<float>(), want) << mode << " under jit";
    EXPECT_EQ(grad(jit(*f))(args...).template to_vector<float>(), want) << mode << " of jit";
  }
}

// The jitted function's result is the same on all devices; where variance is unchecked its
// cotangent is not.
TEST(GradientNested, AJittedFunctionInTheBody) {
  const auto f = [](ShardMapOptions options) {
    return [options](Array x) {
      return sum(
          shard_map([](Array b) { return jit([](Array v) { return psum(v * v, "i"); })(b) * b; },
                    mesh8(), P("i"), P("i"), options)(x));
    };
  };
  // sum(x) · sum(x²): sum(x²) + 2 x sum(x)
  expect_gradient(f({}), f(legacy), {140, 196, 252, 308, 364, 420, 476, 532}, arange(8));
}

TEST(GradientNested, AJittedFunctionThatClosesOverAnArgument) {
  const auto f = [](ShardMapOptions options) {
    return [options](Array w, Array x) {
      return shard_map(
          [w](Array b) { return psum(sum(jit([w](Array v) { return v * w * w; })(b)), "i"); },
          mesh8(), P("i"), P(), options)(x);
    };
  };
  expect_gradient(f({}), f(legacy), Floats{168}, full({}, 3.f), arange(8));
}

TEST(GradientNested, ALoopThatClosesOverAnArgument) {
  const auto f = [](ShardMapOptions options) {
    return [options](Array w, Array x) {
      return shard_map(
          [w](Array b) {
            const auto trip = [w](Array c, Array row) { return std::pair{c + row * w, c}; };
            return psum(scan(trip, zeros_like(sum(b)), b).first, "i");
          },
          mesh8(), P("i"), P(), options)(x);
    };
  };
  expect_gradient(f({}), f(legacy), Floats{120}, full({}, 3.f), arange(16));
  expect_collectives(value_and_grad(f({})), {"psum(i) 4", "psum(i) 4"}, full({}, 3.f), arange(16));
}

TEST(GradientNested, ALoopOverValuesThatHaveNoTangentClosesOverAnArgument) {
  const auto f = [](ShardMapOptions options) {
    return [options](Array w) {
      return shard_map(
          [w](Array b) {
            const auto trip = [w](Array c, Array row) { return std::pair{c * w + row, c * w}; };
            return psum(sum(scan(trip, zeros_like(sum(b)), b).second), "i");
          },
          mesh8(), P("i"), P(), options)(ones({24}));
    };
  };
  // With rows of ones: c = 0, 1, w + 1, and the sum of c w is w + w² + w.
  expect_gradient(f({}), f(legacy), Floats{64}, full({}, 3.f));
}

TEST(GradientNested, ABranchThatClosesOverAnArgument) {
  const auto f = [](ShardMapOptions options) {
    return [options](Array w, Array x) {
      return shard_map(
          [w](Array b) {
            const Array s = sum(b);
            const Array mine = cond(
                s > 3.f, [w](Array v) { return v * w; }, [](Array v) { return v; }, s);
            return psum(mine, "i");
          },
          mesh8(), P("i"), P(), options)(x);
    };
  };
  // The devices that took the first branch: 4 + 5 + 6 + 7.
  expect_gradient(f({}), f(legacy), Floats{22}, full({}, 3.f), arange(8));
}

TEST(GradientNested, ACustomRuleInTheBody) {
  const auto f = [](ShardMapOptions options) {
    return [options](Array x) {
      const auto twice = custom_vjp([](Array v) { return 2.f * v; },
                                    [](Array v) {
                                      return std::pair{2.f * v, v};
                                    },
                                    [](Array, Array ct) { return std::tuple{3.f * ct}; });
      return sum(shard_map([twice](Array b) { return twice(b); }, make_mesh({2}, {"i"}), P("i"),
                           P("i"), options)(x));
    };
  };
  EXPECT_EQ(f({})(arange(4)).item<float>(), 12.f);
  expect_gradient(f({}), f(legacy), Floats(4, 3), arange(4));
}

// If the predicate varies, values that branches close over are cast outside of them, and the
// branches are traced anew: calls in them keep their custom rules, which differ from the functions'
// derivatives.
TEST(GradientNested, CustomRulesInBranchesOnABlock) {
  const auto by_jvp =
      custom_jvp([](Array v) { return 2.f * v; },
                 [](std::tuple<Array> primals, std::tuple<Array> tangents) {
                   return std::pair{2.f * std::get<0>(primals), 3.f * std::get<0>(tangents)};
                 });
  const auto by_vjp = custom_vjp([](Array v) { return 2.f * v; },
                                 [](Array v) {
                                   return std::pair{2.f * v, v};
                                 },
                                 [](Array, Array ct) { return std::tuple{3.f * ct}; });
  const auto f = [](auto rule, ShardMapOptions options) {
    return [=](Array w) {
      return sum(shard_map(
          [rule](Array b, Array w) {
            return cond(
                sum(b) < 2.f, [&](Array c) { return c + sum(rule(w)); },
                [&](Array c) { return c * sum(w); }, b);
          },
          make_mesh({4}, {"i"}), {P("i"), P()}, P("i"), options)(arange(4), w));
    };
  };
  // Two devices take the branch with the rule; the other two give 2 and 3.
  const Array w = array<float>({1, 2, 3}, {3});
  expect_gradient(f(by_jvp, {}), f(by_jvp, legacy), Floats(3, 11), w);
  expect_gradient(f(by_vjp, {}), f(by_vjp, legacy), Floats(3, 11), w);
}

// If the library adds no casts, the branches take an argument that is the same on all devices. The
// branches of the derivative vary as the predicate does, and so does the map that only the second
// rule of the custom_vjp defines.
TEST(GradientNested, ACustomRuleOfAnInvariantArgumentInABranchOnABlock) {
  const auto by_vjp = custom_vjp([](Array v) { return 2.f * v; },
                                 [](Array v) {
                                   return std::pair{2.f * v, v};
                                 },
                                 [](Array, Array ct) { return std::tuple{3.f * ct}; });
  const auto f = [&](ShardMapOptions options) {
    return [=](Array w) {
      return sum(shard_map(
          [by_vjp](Array b, Array w) {
            return cond(
                sum(b) < 2.f, [&](Array w) { return by_vjp(w); }, [](Array w) { return 5.f * w; },
                w);
          },
          mesh8(), {P("i"), P()}, P("i"), options)(arange(8), w));
    };
  };
  // Two devices take the branch with the rule.
  const Array w = array<float>({1, 2, 3}, {3});
  expect_gradient(f({.auto_pbroadcast = false}), f(legacy), Floats(3, 36), w);
}

// A value that the body closes over is an argument with the spec P().
TEST(GradientNested, AClosedOverValueIsAnArgument) {
  const auto body = [](Array w, Array b) { return psum(sum(sin(w * b)), "i"); };
  const auto closed = [body](Array w, Array x) {
    return shard_map([=](Array b) { return body(w, b); }, mesh8(), P("i"), P())(x);
  };
  const auto given = shard_map(body, mesh8(), {P(), P("i")}, P());
  const ShapedArray w({3}, f32), x({24}, f32);
  EXPECT_EQ(to_string(make_jaxpr(closed)(w, x)), to_string(make_jaxpr(given)(w, x)));
  EXPECT_EQ(to_string(make_jaxpr(grad<0, 1>(closed))(w, x)),
            to_string(make_jaxpr(grad<0, 1>(given))(w, x)));
}

}  // namespace
}  // namespace shmap
