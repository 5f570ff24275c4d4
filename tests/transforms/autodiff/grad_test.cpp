// Derivatives of functions: jvp, linearize, vjp, linear_transpose, grad and value_and_grad, in all
// their forms, nested, eagerly and under jit, of trees, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

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
float value(const Array& x) { return x.item<float>(); }

void expect_near(const Array& x, std::initializer_list<float> wanted, float tolerance = 1e-5f) {
  const Floats got = values(x);
  ASSERT_EQ(got.size(), wanted.size());
  std::size_t i = 0;
  for (const float w : wanted) EXPECT_NEAR(got[i++], w, tolerance) << "at " << i - 1;
}

struct Layer {
  Array w;
  float scale = 1.f;
  std::optional<Array> bias;
};
struct Net {
  std::vector<Layer> layers;
  Map heads;
};

Array sum_sin(Array x) { return sum(sin(x)); }
Array weighted(Array a, Array b) { return sum(a * a * b); }

// ---- jvp and linearize

TEST(Jvp, GivesTheValueAndTheDerivative) {
  const Array x = vec({1, 2}), w = vec({3, 4});
  auto [y, y_dot] = jvp(weighted, std::tuple{x, w}, std::tuple{vec({1, 0}), vec({0, 1})});
  EXPECT_EQ(value(y), 19.f);
  EXPECT_EQ(value(y_dot), 2 * 1 * 3 + 4.f);
}

TEST(Jvp, TakesHostScalars) {
  auto [y, y_dot] = jvp([](Array a) { return a * a; }, std::tuple{3.f}, std::tuple{1});
  EXPECT_EQ(value(y), 9.f);
  EXPECT_EQ(value(y_dot), 6.f);
}

TEST(Jvp, OfTrees) {
  const Map p{{"a", vec({1, 2})}, {"b", vec({3, 4})}};
  const auto f = [](Map m, Array s) { return std::pair{m["a"] * s, std::vector{m["b"] * m["b"]}}; };
  auto [y, y_dot] =
      jvp(f, std::tuple{p, 2.f}, std::tuple{Map{{"a", vec({1, 1})}, {"b", vec({0, 1})}}, 10.f});
  expect_near(y.first, {2, 4});
  expect_near(y_dot.first, {12, 22});
  expect_near(y_dot.second[0], {0, 8});
}

TEST(Jvp, IntegersHaveZeros) {
  const auto f = [](Array x, Array n) { return std::tuple{x * astype(n, f32), n + 1}; };
  auto [y, y_dot] =
      jvp(f, std::tuple{vec({1, 2}), arange(2, i32)}, std::tuple{vec({1, 1}), zeros({2}, i32)});
  expect_near(std::get<0>(y_dot), {0, 1});
  EXPECT_EQ(std::get<1>(y_dot).dtype(), i32);
  EXPECT_EQ(std::get<1>(y_dot).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0}));
}

TEST(Jvp, RefusesEmptyResults) {
  const Array x = vec({1, 2});
  const auto empty = [](Array) { return Array(); };
  expect_error<Error>([&] { jvp(empty, std::tuple{x}, std::tuple{x}); },
                      {"jvp: a result", "grad_test.cpp"});
  const auto moved = [](Array a) {
    const Array gone = std::move(a);
    return a;
  };
  expect_error<Error>([&] { jvp(moved, std::tuple{x}, std::tuple{x}); }, {"jvp: a result"});
}

TEST(Jvp, NoneIsZero) {
  auto [y, y_dot] =
      jvp(weighted, std::tuple{vec({1, 2}), vec({3, 4})}, std::tuple{none, vec({1, 1})});
  EXPECT_EQ(value(y_dot), 5.f);
}

TEST(Linearize, IsJvp) {
  const Array x = vec({0.5f, -1.5f}), w = vec({2, 3}), x_dot = vec({1, -2}), w_dot = vec({3, 1});
  const auto f = [](Array a, Array b) { return tanh(a * b) / (1.f + exp(a)); };
  auto [y, f_lin] = linearize(f, x, w);
  auto [y2, y_dot] = jvp(f, std::tuple{x, w}, std::tuple{x_dot, w_dot});
  EXPECT_EQ(values(y), values(y2));
  EXPECT_EQ(values(f_lin(x_dot, w_dot)), values(y_dot));
  const auto copy = f_lin;
  EXPECT_EQ(values(copy(x_dot, w_dot)), values(y_dot));
}

TEST(Linearize, RunsThePrimalOnce) {
  int calls = 0;
  auto [y, f_lin] = linearize(
      [&](Array a) {
        ++calls;
        return a * a;
      },
      3.f);
  EXPECT_EQ(value(f_lin(1.f)), 6.f);
  EXPECT_EQ(value(f_lin(2.f)), 12.f);
  EXPECT_EQ(calls, 1);
}

// ---- vjp and linear_transpose

TEST(Vjp, GivesATuple) {
  auto [y, pullback] = vjp(sum_sin, vec({0, 1}));
  EXPECT_NEAR(value(y), std::sin(1.f), 1e-6);
  auto [x_bar] = pullback(2.f);
  expect_near(x_bar, {2, 2 * std::cos(1.f)});
}

TEST(Vjp, OfTreesCalledTwiceAfterTheFunction) {
  auto make = [] {
    const Array w = vec({3, 4});
    return vjp(
        [w](Vec q, Array b) {
          return std::tuple{q[0] * b, q[1] * w};
        },
        Vec{vec({1, 2}), vec({5, 6})}, vec({7, 8}));
  };
  auto [y, pullback] = make();
  for (int k = 0; k < 2; ++k) {
    auto [q_bar, b_bar] = pullback({vec({1, 1}), vec({1, 10})});
    expect_near(q_bar[0], {7, 8});
    expect_near(q_bar[1], {3, 40});
    expect_near(b_bar, {1, 2});
  }
}

TEST(Vjp, UnusedAndIntegerArgumentsGetZeros) {
  auto [y, pullback] = vjp([](Array x, Array n, Array) { return x * astype(n, f32); }, vec({1, 2}),
                           arange(2, i32), vec({1, 2, 3}));
  auto [x_bar, n_bar, unused] = pullback(vec({1, 1}));
  expect_near(x_bar, {0, 1});
  EXPECT_EQ(n_bar.dtype(), i32);
  EXPECT_EQ(n_bar.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0}));
  expect_near(unused, {0, 0, 0});
}

TEST(LinearTranspose, OfTypesAlone) {
  const Array m = reshape(arange(6), {2, 3});
  const auto f = [&](Array x) { return matmul(m, x); };
  auto [x_bar] = linear_transpose(f, ShapedArray({3}, f32))(vec({1, 1}));
  expect_near(x_bar, {3, 5, 7});
}

TEST(LinearTranspose, RefusesWhatIsNotLinear) {
  expect_error<TypeError>([] { linear_transpose(sum_sin, vec({1, 2}))(1.f); }, {"sin", "linear"});
}

// ---- grad in all its forms

TEST(Grad, OfTheFirstArgument) {
  expect_near(grad(weighted)(vec({1, 2}), vec({3, 4})), {6, 16});
  EXPECT_EQ(value(grad([](Array a) { return a * a * a; })(2.f)), 12.f);
}

TEST(Grad, OfOtherArguments) {
  const Array x = vec({1, 2}), w = vec({3, 4});
  expect_near(grad<1>(weighted)(x, w), {1, 4});
  expect_near(grad(weighted, 1)(x, w), {1, 4});
  expect_near(grad(weighted, -1)(x, w), {1, 4});
  auto [a, b] = grad<0, 1>(weighted)(x, w);
  expect_near(a, {6, 16});
  expect_near(b, {1, 4});
  auto [c, d] = grad(weighted, {1, 0})(x, w);
  expect_near(c, {1, 4});
  expect_near(d, {6, 16});
  std::array<Array, 1> one = grad(weighted, {0})(x, w);
  expect_near(one[0], {6, 16});
}

TEST(Grad, ValueAndGrad) {
  const Array x = vec({1, 2}), w = vec({3, 4});
  int calls = 0;
  const auto f = [&](Array a, Array b) {
    ++calls;
    return weighted(a, b);
  };
  auto [y, g] = value_and_grad(f)(x, w);
  EXPECT_EQ(value(y), 19.f);
  expect_near(g, {6, 16});
  EXPECT_EQ(calls, 1);
  auto [y1, g1] = value_and_grad<1>(f)(x, w);
  expect_near(g1, {1, 4});
  auto [y2, g2] = value_and_grad(f, {0, 1})(x, w);
  expect_near(g2[1], {1, 4});
}

TEST(Grad, WithAux) {
  const auto f = [](Array a) { return std::pair{sum(a * a), std::tuple{a + 1, sum(a)}}; };
  auto [g, aux] = grad(f, has_aux)(vec({1, 2}));
  expect_near(g, {2, 4});
  expect_near(std::get<0>(aux), {2, 3});
  auto [both, g2] = value_and_grad(f, has_aux)(vec({1, 2}));
  EXPECT_EQ(value(both.first), 5.f);
  EXPECT_EQ(value(std::get<1>(both.second)), 3.f);
  expect_near(g2, {2, 4});
  const auto h = [](Array, Array b) { return std::pair{sum(b * b), arange(2, i32)}; };
  auto [g3, aux3] = grad<1>(h, has_aux)(1.f, vec({3}));
  expect_near(g3, {6});
  EXPECT_EQ(aux3.dtype(), i32);
}

TEST(Grad, OfStructsVectorsAndMaps) {
  Net net;
  net.layers.push_back({vec({1, 2}), 2.f, vec({5})});
  net.layers.push_back({vec({3, 4}), 3.f, std::nullopt});
  net.heads["q"] = vec({6, 7});
  const auto loss = [](Net n) {
    return sum(n.layers[0].w * n.layers[1].w) * n.layers[1].scale + sum(square(n.heads["q"]));
  };
  const Net g = grad(loss)(net);
  expect_near(g.layers[0].w, {9, 12});
  expect_near(g.layers[1].w, {3, 6});
  expect_near(*g.layers[0].bias, {0});
  EXPECT_FALSE(g.layers[1].bias.has_value());
  EXPECT_EQ(g.layers[1].scale, 3.f);
  expect_near(g.heads.at("q"), {12, 14});
}

TEST(Grad, TwiceAndThrice) {
  const auto cube = [](Array a) { return a * a * a; };
  EXPECT_EQ(value(grad(grad(cube))(2.f)), 12.f);
  EXPECT_EQ(value(grad(grad(grad(cube)))(2.f)), 6.f);
  const auto inner = grad(sum_sin);
  expect_near(grad([&](Array x) {
                return sum(inner(x) * vec({1, 2}));
              })(vec({0.5f, 1})),
              {-std::sin(0.5f), -2 * std::sin(1.f)});
}

TEST(Grad, ForwardOverReverseAndBack) {
  const auto f = [](Array a) { return sum(exp(a) * a); };
  const Array x = vec({0.5f, -1}), v = vec({1, 2});
  const auto hvp = [](float a, float d) { return (2 + a) * std::exp(a) * d; };
  auto [g, forward] = jvp(grad(f), std::tuple{x}, std::tuple{v});
  expect_near(forward, {hvp(0.5f, 1), hvp(-1, 2)}, 1e-4f);
  const Array backward =
      grad([&](Array a) { return jvp(f, std::tuple{a}, std::tuple{v}).second; })(x);
  expect_near(backward, {hvp(0.5f, 1), hvp(-1, 2)}, 1e-4f);
}

TEST(Grad, PerturbationsAreNotConfused) {
  // d/dx (x * d/dy (x + y)) = 1
  const auto f = [](Array x) { return x * grad([&](Array y) { return x + y; })(1.f); };
  EXPECT_EQ(value(grad(f)(3.f)), 1.f);
}

// ---- with jit, and eagerly

TEST(GradAndJit, EitherAround) {
  const Array x = vec({1, 2}), w = vec({3, 4});
  const auto around = jit(grad(weighted));
  for (int k = 0; k < 4; ++k) expect_near(around(x, w), {6, 16});
  const auto inside = grad(jit([](Array a, Array b) { return weighted(a, b) * 2; }));
  for (int k = 0; k < 2; ++k) expect_near(inside(x, w), {12, 32});
  expect_near(jit(grad(jit(grad(jit([](Array a) { return a * a * a; })))))(2.f), {12});
}

TEST(GradAndJit, HostControlFlowPrintingAndItems) {
  std::ostringstream out;
  std::vector<float> seen;
  const auto f = [&](Array x) {
    Array y = x * x;
    out << y;
    seen.push_back(sum(y).item<float>());
    if (sum(y) > 4) return sum(y * x);
    return sum(y);
  };
  expect_near(grad(f)(vec({1, 2})), {3, 12});
  expect_near(grad(f)(vec({1, 1})), {2, 2});
  EXPECT_EQ(seen, (std::vector<float>{5, 2}));
  EXPECT_NE(out.str().find("4."), std::string::npos) << out.str();
}

TEST(Grad, ArgumentsAreNotDonated) {
  const Array x = vec({1, 2});
  Array y = x + 1.f;
  grad([](Array a) {
    a *= 2.f;
    return sum(a * a);
  })(y);
  expect_near(y, {2, 3});
}

// ---- errors

TEST(GradErrors, IntegerArguments) {
  const auto f = [](Map m) { return sum(astype(m["n"], f32)); };
  expect_error<TypeError>(
      [&] {
        grad(f)(Map{{"n", arange(2, i32)}, {"x", vec({1})}});
      },
      {"grad: args[0]['n'] has type i32[2]", "astype", "grad_test.cpp"});
  expect_error<TypeError>([&] { value_and_grad(sum_sin)(3); },
                          {"value_and_grad: args[0]", "i32[]"});
}

TEST(GradErrors, ResultsThatAreNoFloatingScalar) {
  const Array x = vec({1, 2});
  expect_error<TypeError>([&] { grad([](Array a) { return a * 2; })(x); },
                          {"grad: the function's result has type f32[2]", "sum", "jacrev"});
  expect_error<TypeError>([&] { grad([](Array a) { return sum(astype(a, i32)); })(x); },
                          {"i32[]", "floating", "astype"});
  expect_error<TypeError>([&] { grad([](Array a) {
                                  return std::tuple{sum(a), a};
                                })(x); },
                          {"[*, *]", "has_aux"});
  expect_error<TypeError>(
      [&] {
        grad([](Array a) { return std::pair{a, a}; }, has_aux)(x);
      },
      {"the loss", "f32[2]"});
}

TEST(GradErrors, ArgumentNumbers) {
  const Array x = vec({1, 2});
  expect_error<ValueError>([&] { grad(weighted, 2)(x, x); }, {"argument number 2", "2 arguments"});
  expect_error<ValueError>([&] { grad(weighted, {0, -3})(x, x); }, {"argument number -3"});
}

TEST(GradErrors, CotangentsOfAnotherType) {
  const Array x = vec({1, 2});
  auto [y, pullback] = vjp([](Array a) { return std::tuple{a, Vec{a * 2, sum(a)}}; }, x);
  const auto& pull = pullback;
  expect_error<TypeError>(
      [&] {
        pull({x, Vec{x}});
      },
      {"vjp: the cotangent has the structure [*, [*]]", "[*, [*, *]]"});
  expect_error<TypeError>(
      [&] {
        pull({x, Vec{vec({1, 2, 3}), 1.f}});
      },
      {"vjp: the cotangent[1][0] has type f32[3]", "f32[2]", "shape"});
  expect_error<TypeError>(
      [&] {
        pull({astype(x, f64), Vec{x, 1.f}});
      },
      {"vjp: the cotangent[0] has type f64[2]", "f32[2]", "astype"});
  expect_error<TypeError>([&] { jvp(sum_sin, std::tuple{x}, std::tuple{vec({1})}); },
                          {"jvp: tangents[0] has type f32[1], and primals[0] has type f32[2]"});
  auto [z, f_lin] = linearize(sum_sin, x);
  const auto& linear = f_lin;
  expect_error<TypeError>([&] { linear(1.f); },
                          {"linearize: tangents[0] has type f32[], and args[0] has type f32["});
  expect_error<ValueError>([&] { linear(Array()); }, {"linearize: tangents[0]"});
}

TEST(GradErrors, EmptyArrays) {
  expect_error<ValueError>([] { grad(sum_sin)(Array()); }, {"grad", "empty Array"});
}

// ---- in the body of a shard_map

TEST(GradInABody, InvariantArgumentsAreSummed) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const Array x = arange(8);
  auto f = shard_map(
      [](Array w, Array block) { return grad([&](Array v) { return sum(v * block); })(w); }, mesh,
      {P(), P("i")}, P());
  EXPECT_EQ(value(f(2.f, x)), 28.f);
}

TEST(GradInABody, CotangentsThatVary) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const Array x = arange(8);
  // A cotangent that varies less than the output is cast, one that varies more refused.
  auto less = shard_map(
      [](Array block) {
        auto [y, pullback] = vjp([](Array b) { return b * 3; }, block);
        auto [b_bar] = pullback(ones({2}));
        return b_bar;
      },
      mesh, P("i"), P("i"));
  EXPECT_EQ(values(less(x)), Floats(8, 3.f));
  auto more = shard_map(
      [](Array w, Array block) {
        auto [y, pullback] = vjp([](Array v) { return v * 3; }, w);
        auto [w_bar] = pullback(block);
        return w_bar;
      },
      mesh, {P(), P("i")}, P("i"));
  expect_error<TypeError>(
      [&] {
        more(vec({1, 2}), x);
      },
      {"vjp: the cotangent has type f32[2]{i}", "f32[2],", "psum"});
}

}  // namespace
}  // namespace shmap
