// jacfwd, jacrev and hessian: values, shapes and types of results.
#include <gtest/gtest.h>

#include <cmath>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using Floats = std::vector<float>;
using Vec = std::vector<Array>;
using Map = std::map<std::string, Array>;

Array vec(std::initializer_list<float> v) {
  return array<float>(Floats(v), {static_cast<std::int64_t>(v.size())});
}
Floats values(const Array& x) { return x.to_vector<float>(); }

void expect_near(const Array& x, const Shape& shape, std::initializer_list<float> wanted) {
  EXPECT_EQ(x.shape(), shape);
  const Floats got = values(x);
  ASSERT_EQ(got.size(), wanted.size());
  std::size_t i = 0;
  for (const float w : wanted) EXPECT_NEAR(got[i++], w, 1e-5f) << "at " << i - 1;
}

// Checks both modes.
template <class F, class... A>
void expect_jacobian(F f, const Shape& shape, std::initializer_list<float> wanted,
                     const A&... args) {
  expect_near(jacfwd(f)(args...), shape, wanted);
  expect_near(jacrev(f)(args...), shape, wanted);
  expect_near(jit(jacfwd(f))(args...), shape, wanted);
  expect_near(jit(jacrev(f))(args...), shape, wanted);
}

TEST(Jacobian, ShapesAreThoseOfTheResultAndOfTheArgument) {
  const Array m = reshape(arange(6), {2, 3});
  expect_jacobian([&](Array x) { return matmul(m, x); }, {2, 3}, {0, 1, 2, 3, 4, 5},
                  vec({1, 2, 3}));
  expect_jacobian([](Array x) { return x * x; }, {2, 2}, {2, 0, 0, 4}, vec({1, 2}));
  expect_jacobian([](Array x) { return sum(x * x); }, {2}, {2, 4}, vec({1, 2}));
  expect_jacobian([](Array x) { return x * vec({1, 2}); }, {2}, {1, 2}, 3.f);
  expect_jacobian([](Array x) { return x * x; }, {}, {6}, 3.f);
  expect_jacobian([](Array x) { return transpose(x); }, {2, 1, 1, 2}, {1, 0, 0, 1},
                  reshape(arange(2), {1, 2}));
  expect_jacobian([](Array x, Array n) { return x * astype(n, f32); }, {2, 2}, {5, 0, 0, 5},
                  vec({1, 2}), 5);
}

TEST(Jacobian, OfNothing) {
  const auto f = [](Array x) { return concatenate({x, ones({2})}, 0); };
  EXPECT_EQ(jacfwd(f)(zeros({0})).shape(), (Shape{2, 0}));
  EXPECT_EQ(jacrev(f)(zeros({0})).shape(), (Shape{2, 0}));
}

TEST(Jacobian, OfTrees) {
  const Map p{{"a", vec({1, 2})}, {"b", 3.f}};
  const auto f = [](Map m) { return std::tuple{m["a"] * m["b"], Vec{m["b"]}}; };
  const auto check = [](std::tuple<Map, std::vector<Map>> j) {
    auto& [first, second] = j;
    expect_near(first["a"], {2, 2}, {3, 0, 0, 3});
    expect_near(first["b"], {2}, {1, 2});
    expect_near(second[0]["a"], {2}, {0, 0});
    expect_near(second[0]["b"], {}, {1});
  };
  check(jacfwd(f)(p));
  check(jacrev(f)(p));
}

TEST(Jacobian, OfAStructByOneArray) {
  struct Out {
    Array y;
    float scale;
    std::optional<Array> rest;
  };
  const auto f = [](Array x) { return Out{x * x, 2.f, sum(x)}; };
  for (const Out& j : {jacfwd(f)(vec({1, 2})), jacrev(f)(vec({1, 2}))}) {
    expect_near(j.y, {2, 2}, {2, 0, 0, 4});
    EXPECT_EQ(j.scale, 2.f);
    expect_near(*j.rest, {2}, {1, 1});
  }
}

TEST(Hessian, OfASmallFunction) {
  // x0² x1 + sin(x1)
  const auto f = [](Array x) { return x[0] * x[0] * x[1] + sin(x[1]); };
  const float b = 3.f;
  const std::initializer_list<float> wanted{2 * b, 4, 4, -std::sin(b)};
  const Array x = vec({2, b});
  expect_near(hessian(f)(x), {2, 2}, wanted);
  expect_near(jit(hessian(f))(x), {2, 2}, wanted);
  expect_near(jacrev(jacfwd(f))(x), {2, 2}, wanted);
  expect_near(jacfwd(jacfwd(f))(x), {2, 2}, wanted);
  expect_near(jacrev(jacrev(f))(x), {2, 2}, wanted);
  expect_near(jacfwd(grad(f))(x), {2, 2}, wanted);
}

TEST(Hessian, OfTrees) {
  const auto f = [](Vec p, Array w) { return sum(p[0] * p[1] * w); };
  const std::vector<Vec> h = hessian(f)(Vec{vec({1, 2}), vec({3, 4})}, 5.f);
  expect_near(h[0][0], {2, 2}, {0, 0, 0, 0});
  expect_near(h[0][1], {2, 2}, {5, 0, 0, 5});
  expect_near(h[1][0], {2, 2}, {5, 0, 0, 5});
}

TEST(Jacobian, RunsTheFunctionOnce) {
  int calls = 0;
  const auto f = [&](Array x) {
    ++calls;
    return sum(x) > 0 ? x * x : x;
  };
  expect_near(jacfwd(f)(vec({1, 2})), {2, 2}, {2, 0, 0, 4});
  expect_near(jacrev(f)(vec({1, 2})), {2, 2}, {2, 0, 0, 4});
  EXPECT_EQ(calls, 2);
}

TEST(Jacobian, InAMappedBody) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto f = shard_map([](Array x) { return jacfwd([](Array b) { return b * b; })(x); }, mesh,
                           P("i"), P("i"));
  EXPECT_EQ(values(f(arange(8))), (Floats{0, 0, 0, 2, 4, 0, 0, 6, 8, 0, 0, 10, 12, 0, 0, 14}));
  const auto g = shard_map([](Array x) { return jacrev([](Array b) { return b * b; })(x); }, mesh,
                           P("i"), P("i"));
  EXPECT_EQ(values(g(arange(8))), values(f(arange(8))));
}

TEST(Jacobian, RefusesIntegers) {
  const auto f = [](Map m) { return astype(m["n"], f32); };
  const Map p{{"n", arange(2, i32)}};
  expect_error<TypeError>([&] { jacfwd(f)(p); },
                          {"jacfwd: args[0]['n'] has type i32[2]", "astype"});
  expect_error<TypeError>([&] { jacrev(f)(p); }, {"jacrev: args[0]['n'] has type i32[2]"});
  const auto g = [](Array x) { return std::tuple{x, astype(x, i32)}; };
  expect_error<TypeError>([&] { jacrev(g)(vec({1})); }, {"jacrev: the result[1] has type i32[1]"});
}

}  // namespace
}  // namespace shmap
