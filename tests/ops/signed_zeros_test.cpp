// shmap-test: devices
// Maxima and minima of zeros of both signs: -0 is less than 0, as IEEE 754-2019 has it, whatever
// the order of the operands. The expected signs are JAX's (jax 0.10 on a CPU, in all four dtypes).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using Signs = std::vector<int>;  // 1: negative

Signs signs(const Array& x) {
  Signs out;
  for (const double v : astype(x, f64).to_vector<double>()) out.push_back(std::signbit(v) ? 1 : 0);
  return out;
}
// The signs of so many elements, of which each four are alike.
Signs repeated(const Signs& four, std::int64_t n) {
  Signs out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(four[static_cast<std::size_t>(i % 4)]);
  return out;
}
Array zeros_of(const Signs& negative, DType dtype) {
  std::vector<double> values;
  for (const int sign : negative) values.push_back(sign ? -0. : 0.);
  return astype(array<double>(values, {values.size()}), dtype);
}

const Signs kA = {0, 1, 0, 1}, kB = {1, 0, 0, 1};

// f, as it is and under jit, where it is part of a fused program.
void expect_signs(const Signs& want, const std::function<Array(Array, Array)>& f, const Array& a,
                  const Array& b) {
  EXPECT_EQ(signs(f(a, b)), want);
  EXPECT_EQ(signs(jit([&](Array x, Array y) { return f(x * 2.f, y * 3.f) * 0.5f; })(a, b)), want);
}

class SignedZeros : public ::testing::TestWithParam<DType> {};

TEST_P(SignedZeros, OfTwoOperands) {
  for (const std::int64_t n : {1, 4, 67}) {
    SCOPED_TRACE(n);
    const Array a = zeros_of(repeated(kA, n), GetParam()),
                b = zeros_of(repeated(kB, n), GetParam());
    const auto all = [n](const Signs& four) { return repeated(four, n); };
    expect_signs(
        all({0, 0, 0, 1}), [](Array x, Array y) { return maximum(x, y); }, a, b);
    expect_signs(
        all({1, 1, 0, 1}), [](Array x, Array y) { return minimum(x, y); }, a, b);
    expect_signs(
        all({0, 0, 0, 0}), [](Array x, Array) { return maximum(x, 0.f); }, a, b);
    expect_signs(
        all({0, 0, 0, 0}), [](Array x, Array) { return maximum(0.f, x); }, a, b);
    expect_signs(
        all({0, 1, 0, 1}), [](Array x, Array) { return maximum(-0.f, x); }, a, b);
    expect_signs(
        all({0, 1, 0, 1}), [](Array x, Array) { return minimum(x, 0.f); }, a, b);
    expect_signs(
        all({1, 1, 1, 1}), [](Array x, Array) { return minimum(-0.f, x); }, a, b);
    expect_signs(
        all({0, 0, 0, 0}), [](Array x, Array) { return relu(x); }, a, b);
    expect_signs(
        all({0, 0, 0, 0}), [](Array x, Array) { return clip(x, 0.f, 1.f); }, a, b);
  }
}

TEST_P(SignedZeros, BetweenBounds) {
  const DType t = GetParam();
  const Array low = astype(array<float>({0.f, -0.f, 0.f, -0.f, 0.f, 0.f, -0.f, -1.f}, {8}), t),
              x = astype(array<float>({-0.f, 0.f, -0.f, 0.f, -1.f, -0.f, -1.f, 0.f}, {8}), t),
              high = astype(array<float>({1.f, 1.f, -0.f, -0.f, -0.f, 0.f, 0.f, -0.f}, {8}), t);
  const auto f = [](Array a, Array b, Array c) {
    Array in[3] = {a, b, c};
    return bind(clamp_p, in, no_params, {});
  };
  const Signs want = {0, 0, 1, 1, 1, 0, 1, 1};
  EXPECT_EQ(signs(f(low, x, high)), want);
  EXPECT_EQ(signs(jit([&](Array a, Array b, Array c) {
              return f(a * 2.f, b * 2.f, c * 2.f) * 2.f;
            })(low, x, high)),
            want);
}

TEST_P(SignedZeros, Reduced) {
  const Array a = zeros_of({0, 1}, GetParam()), b = zeros_of({1, 0}, GetParam());
  for (const Array& x : {a, b}) {
    const Array rows = broadcast_to(x, {37, 2}), columns = transpose(rows);
    for (const int axis : {0, 1}) {
      const auto most = [axis](Array y, Array) { return max(y, axis); };
      const auto least = [axis](Array y, Array) { return min(y, axis); };
      const Array& across = axis == 0 ? columns : rows;
      expect_signs(Signs(37, 0), most, across, x);
      expect_signs(Signs(37, 1), least, across, x);
    }
    expect_signs(
        {0}, [](Array y, Array) { return max(y); }, columns, x);
    expect_signs(
        {1}, [](Array y, Array) { return min(y); }, columns, x);
    EXPECT_EQ(argmax(x, 0).item<int>(), 0);  // for which both are equal
    EXPECT_EQ(argmin(x, 0).item<int>(), 0);
  }
  const Array many = zeros_of(repeated(kB, 67), GetParam());
  EXPECT_EQ(signs(max(many)), Signs{0});
  EXPECT_EQ(signs(min(many)), Signs{1});
}

TEST_P(SignedZeros, CumulatedAndScattered) {
  const Array a = zeros_of(kA, GetParam()), b = zeros_of(kB, GetParam());
  EXPECT_EQ(signs(cummax(b)), (Signs{1, 0, 0, 0}));
  EXPECT_EQ(signs(cummin(a)), (Signs{0, 1, 1, 1}));
  EXPECT_EQ(signs(a.at(arange(4, i32)).max(b)), (Signs{0, 0, 0, 1}));
  EXPECT_EQ(signs(a.at(arange(4, i32)).min(b)), (Signs{1, 1, 0, 1}));
}

TEST_P(SignedZeros, OfSeveralDevices) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto over = [&](Array (*f)(Array), const Signs& x) {
    return signs(shard_map(f, mesh, P("i"), P())(zeros_of(x, GetParam())));
  };
  for (const Signs& x : {kA, kB}) {
    EXPECT_EQ(over([](Array y) { return pmax(y, "i"); }, x), Signs{0});
    EXPECT_EQ(over([](Array y) { return pmin(y, "i"); }, x), Signs{1});
  }
}

// Operands that are equal share the derivative, as before.
TEST_P(SignedZeros, AreTiesForDerivatives) {
  const Array a = zeros_of(kA, GetParam()), b = zeros_of(kB, GetParam());
  const auto half = std::vector<double>(4, 0.5);
  const auto values = [](const Array& x) { return astype(x, f64).to_vector<double>(); };
  EXPECT_EQ(values(grad([&](Array x) { return sum(maximum(x, b)); })(a)), half);
  EXPECT_EQ(values(grad([&](Array x) { return sum(minimum(b, x)); })(a)), half);
  EXPECT_EQ(values(grad([](Array x) { return max(x); })(a)), std::vector<double>(4, 0.25));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SignedZeros, ::testing::Values(f32, f64, bf16, f16),
                         [](const auto& info) { return short_name(info.param); });

}  // namespace
}  // namespace shmap
