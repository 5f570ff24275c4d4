// Rules of custom_jvp that differentiate programs (jit, loops, branches, checkpoint), or are
// programs themselves: what they compute from primals alone stays out of the linear program.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

using Floats = std::vector<float>;
using A1 = std::tuple<Array>;

Array vec(std::initializer_list<float> v) {
  return array<float>(Floats(v), {static_cast<std::int64_t>(v.size())});
}
Floats values(const Array& x) { return x.to_vector<float>(); }

// x² with a derivative of 3x, which no other code gives.
auto wrong_jvp() {
  return custom_jvp([](Array x) { return x * x; },
                    [](A1 primals, A1 tangents) {
                      const auto [x] = primals;
                      const auto [t] = tangents;
                      return std::pair{x * x, 3.f * x * t};
                    });
}

// A rule that differentiates code with a program inside: what jvp gives as the value is computed
// from the primals alone, and may be a factor of the tangent.
template <class Inner>
void expect_that_a_rule_may_differentiate(const char* what, Inner inner) {
  SCOPED_TRACE(what);
  const auto f = [inner](Array x) { return x * inner(x); };
  const auto ruled =
      custom_jvp(f, [f](A1 primals, A1 tangents) { return jvp(f, primals, tangents); });
  const Array x = vec({0.5f, -2.f});
  const auto loss = [](auto g) { return [g](Array y) { return sum(g(y)); }; };
  const Floats wanted = values(grad(loss(f))(x));
  EXPECT_EQ(values(grad(loss(ruled))(x)), wanted);
  EXPECT_EQ(values(jit(grad(loss(ruled)))(x)), wanted);
  EXPECT_EQ(values(grad(loss(jit(ruled)))(x)), wanted);
  EXPECT_EQ(values(hessian(loss(ruled))(x)), values(hessian(loss(f))(x)));
  EXPECT_EQ(values(linearize(ruled, x).second(x)), values(linearize(f, x).second(x)));
  // A jvp in its tangents alone is a linear function, wherever it is called.
  const auto along = [&](Array t) { return jvp(f, std::tuple{x}, std::tuple{t}).second; };
  const auto [back] = linear_transpose(along, x)(ones({2}));
  EXPECT_EQ(values(back), wanted);
  const auto [staged] = jit([&](Array ct) { return linear_transpose(along, x)(ct); })(ones({2}));
  EXPECT_EQ(values(staged), wanted);
}

TEST(CustomJvpPrograms, ItsRuleMayDifferentiatePrograms) {
  const auto cube = [](Array x) { return x * x * x; };
  const Mesh mesh = make_mesh({2}, "i");
  expect_that_a_rule_may_differentiate("operations", cube);
  expect_that_a_rule_may_differentiate("jit", [=](Array x) { return jit(cube)(x); });
  expect_that_a_rule_may_differentiate("checkpoint", [=](Array x) { return checkpoint(cube)(x); });
  expect_that_a_rule_may_differentiate(
      "shard_map", [=](Array x) { return shard_map(cube, mesh, P("i"), P("i"))(x); });
  expect_that_a_rule_may_differentiate("scan", [=](Array x) {
    const auto trip = [=](Array carry, none_t) { return std::pair{cube(carry), carry}; };
    return scan(trip, x, none, {.length = 2}).first;
  });
  expect_that_a_rule_may_differentiate("cond", [=](Array x) {
    return cond(
        sum(x) < 9.f, cube, [](Array y) { return y; }, x);
  });
  expect_that_a_rule_may_differentiate("custom_jvp", [=](Array x) { return wrong_jvp()(x); });
}

// A rule that calls a program of primals and tangents together: of the program's results, those
// that depend on the primals alone are values, also in programs inside of it.
template <class Rule>
void expect_that_a_rule_may_be(const char* what, Rule rule_of) {
  SCOPED_TRACE(what);
  const auto inner = jit([](Array x) { return x * x * x; });
  const auto f = [=](Array x) { return x * inner(x); };
  const auto both = [=](Array x, Array t) { return jvp(f, std::tuple{x}, std::tuple{t}); };
  const auto ruled = custom_jvp(f, [=](A1 primals, A1 tangents) {
    return rule_of(both)(std::get<0>(primals), std::get<0>(tangents));
  });
  const Array x = vec({0.5f, -2.f});
  const auto loss = [](auto g) { return [g](Array y) { return sum(g(y)); }; };
  const Floats wanted = values(grad(loss(f))(x));
  EXPECT_EQ(values(grad(loss(ruled))(x)), wanted);
  EXPECT_EQ(values(jit(grad(loss(ruled)))(x)), wanted);
  EXPECT_EQ(values(grad(loss(vmap(ruled)))(x)), wanted);
  EXPECT_EQ(values(vmap(grad(ruled))(x)), wanted);
  EXPECT_EQ(values(hessian(loss(ruled))(x)), values(hessian(loss(f))(x)));
}

TEST(CustomJvpPrograms, ItsRuleMayBeAProgram) {
  expect_that_a_rule_may_be("jit", [](auto both) { return jit(both); });
  expect_that_a_rule_may_be("checkpoint", [](auto both) { return checkpoint(both); });
  expect_that_a_rule_may_be("scan", [](auto both) {
    return [=](Array x, Array t) {
      const auto trip = [=](std::pair<Array, Array> carry, none_t) {
        return std::pair{both(carry.first, carry.second), carry.first};
      };
      return scan(trip, std::pair{x, t}, none, {.length = 1}).first;
    };
  });
  expect_that_a_rule_may_be("cond", [](auto both) {
    return [=](Array x, Array t) {
      return cond(
          sum(x) < 9.f, both,
          [](Array y, Array s) {
            return std::pair{y, s};
          },
          x, t);
    };
  });
  // A product of the value and the tangent, both results of one call.
  expect_that_a_rule_may_be("products", [](auto both) {
    return [=](Array x, Array t) {
      const auto [y, y_dot] = jit(both)(x, t);
      return std::pair{y, y * y_dot / both(x, t).first};
    };
  });
}

// Such operations cast their operands to vary, values and tangents.
TEST(CustomJvpPrograms, ItsRuleMayDifferentiateOperationsThatCast) {
  const Mesh mesh = make_mesh({2}, "i");
  const auto expect_gradient = [&](const char* what, auto f) {
    SCOPED_TRACE(what);
    const auto ruled =
        custom_jvp(f, [f](A1 primals, A1 tangents) { return jvp(f, primals, tangents); });
    const auto loss = [&](auto g) {
      const auto body = [g](Array x) { return sum(psum(g(psum(x, "i")), "i")); };
      return [=](Array x) { return shard_map(body, mesh, P("i"), P())(x); };
    };
    const Array x = vec({0.5f, -2.f, 1.f, 3.f});
    const Floats wanted = values(grad(loss(f))(x));
    EXPECT_EQ(values(grad(loss(ruled))(x)), wanted);
    EXPECT_EQ(values(grad(jit(loss(ruled)))(x)), wanted);
  };
  expect_gradient("all_gather_einsum", [](Array x) {
    return all_gather_einsum("ij,jk->ik", reshape(x, {2, 1}), reshape(x, {1, 2}), "i");
  });
  expect_gradient("einsum_psum_scatter", [](Array x) {
    return einsum_psum_scatter("ij,jk->ik", reshape(x, {2, 1}), reshape(x, {1, 2}), "i");
  });
  expect_gradient("pbroadcast", [](Array x) {
    const Array y = pbroadcast(x, "i");
    return y * y;
  });
}

TEST(LinearTranspose, MapsThatComputeKnownValuesInsidePrograms) {
  const Array x = vec({0.5f, -2.f});
  const auto map = [x](Array t) {
    const auto both = jit([](Array y, Array s) { return std::pair{y * y, y * s}; });
    const auto outer = jit([both](Array y, Array s) {
      const auto [square, product] = both(y, s);
      return square * product;
    });
    return outer(x, t);
  };
  const auto [t_bar] = linear_transpose(map, x)(vec({1.f, 3.f}));
  EXPECT_EQ(values(t_bar), (Floats{0.125f, -24.f}));
}

// The linear map of a loop that only ends when a device says so has no transpose, but it exists.
TEST(CustomJvpPrograms, ItsRuleMayDifferentiateAWhileLoop) {
  const auto f = [](Array x) {
    return x *
           while_loop([](Array y) { return sum(y * y) < 100.f; }, [](Array y) { return y * y; }, x);
  };
  const auto ruled =
      custom_jvp(f, [f](A1 primals, A1 tangents) { return jvp(f, primals, tangents); });
  const Array x = vec({0.5f, -2.f});
  EXPECT_EQ(values(linearize(ruled, x).second(x)),
            values(jvp(f, std::tuple{x}, std::tuple{x}).second));
}

}  // namespace
}  // namespace shmap
