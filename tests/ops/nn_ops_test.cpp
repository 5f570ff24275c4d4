// shmap-test: devices
// Layers against f64 arithmetic, and in a body.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "shmap/jit.h"
#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/shard_map.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

constexpr int kRows = 8, kColumns = 16;

std::vector<float> numbers(std::int64_t n, int seed = 0) {
  std::vector<float> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>((i * 37 + i / 11 + static_cast<std::size_t>(seed)) % 41) / 8 - 2.5f;
  return out;
}

Array rows() { return array(numbers(kRows * kColumns), {kRows, kColumns}); }

void expect_near(const Array& got, const std::vector<double>& want, double tolerance) {
  const auto g = astype(got, f32).to_vector<float>();
  ASSERT_EQ(g.size(), want.size());
  for (std::size_t i = 0; i < g.size(); ++i)
    ASSERT_NEAR(g[i], want[i], tolerance * (1 + std::abs(want[i]))) << i;
}

std::vector<double> softmax_of(const std::vector<float>& x, bool log) {
  std::vector<double> out;
  for (std::size_t r = 0; r < x.size(); r += kColumns) {
    double total = 0;
    for (std::size_t c = 0; c < kColumns; ++c) total += std::exp(static_cast<double>(x[r + c]));
    for (std::size_t c = 0; c < kColumns; ++c)
      out.push_back(log ? x[r + c] - std::log(total)
                        : std::exp(static_cast<double>(x[r + c])) / total);
  }
  return out;
}

std::vector<double> norm_of(const std::vector<float>& x, const std::vector<float>& scale,
                            const std::vector<float>& bias, bool centre, double eps) {
  std::vector<double> out;
  for (std::size_t r = 0; r < x.size(); r += kColumns) {
    double mean = 0, power = 0;
    for (std::size_t c = 0; c < kColumns; ++c) mean += centre ? x[r + c] / double{kColumns} : 0;
    for (std::size_t c = 0; c < kColumns; ++c) power += (x[r + c] - mean) * (x[r + c] - mean);
    const double norm = std::sqrt(power / kColumns + eps);
    for (std::size_t c = 0; c < kColumns; ++c)
      out.push_back((x[r + c] - mean) / norm * scale[c] + (centre ? bias[c] : 0));
  }
  return out;
}

TEST(Layers, Softmax) {
  const auto values = numbers(kRows * kColumns);
  expect_near(softmax(rows()), softmax_of(values, false), 1e-6);
  expect_near(log_softmax(rows()), softmax_of(values, true), 1e-6);
  EXPECT_EQ(softmax(array<std::int32_t>({1, 2}, {2})).dtype(), f32);
  EXPECT_FLOAT_EQ(sum(softmax(rows(), {0, 1})).item<float>(), 1);
  EXPECT_EQ(softmax(zeros({3, 0})).shape(), (Shape{3, 0}));
  EXPECT_EQ(softmax(array<float>({1000, -1000}, {2})).to_vector<float>(),
            (std::vector<float>{1, 0}));
}

// Half types are computed in f32 and rounded once, under jit too. The values are exact in both.
TEST(Layers, SoftmaxOfHalfTypesRoundsOnce) {
  const std::pair<const char*, std::function<Array(Array)>> functions[] = {
      {"softmax", [](Array x) { return softmax(x); }},
      {"softmax over columns", [](Array x) { return softmax(x, 0); }},
      {"log_softmax", [](Array x) { return log_softmax(x); }},
      {"logsumexp", [](Array x) { return logsumexp(x, 1); }}};
  for (const auto& [name, f] : functions) {
    for (const DType half : {f16, bf16}) {
      const auto want = astype(astype(f(rows()), half), f32).to_vector<float>();
      const Array x = astype(rows(), half);
      for (const Array& got : {f(x), jit(f)(x)}) {
        EXPECT_EQ(got.dtype(), half) << name;
        EXPECT_EQ(astype(got, f32).to_vector<float>(), want) << name << " " << to_string(half);
      }
    }
  }
}

TEST(Layers, Activations) {
  const Array x = array<float>({-3, -0.5, 0, 0.5, 3}, {5});
  EXPECT_EQ(relu(x).to_vector<float>(), (std::vector<float>{0, 0, 0, 0.5, 3}));
  EXPECT_EQ(relu(array<std::int32_t>({-1, 1}, {2})).dtype(), i32);
  std::vector<double> exact, smooth;
  for (double v : {-3.0, -0.5, 0.0, 0.5, 3.0}) {
    exact.push_back(v / 2 * (1 + std::erf(v / std::sqrt(2.0))));
    smooth.push_back(v / (1 + std::exp(-v)));
  }
  expect_near(gelu(x, false), exact, 1e-6);
  expect_near(gelu(x), exact, 1e-3);
  expect_near(silu(x), smooth, 1e-6);
  EXPECT_EQ(gelu(astype(x, f16)).dtype(), f16);
}

TEST(Layers, Norms) {
  const auto x = numbers(kRows * kColumns), scale = numbers(kColumns, 5),
             bias = numbers(kColumns, 9);
  const Array s = array(scale, {kColumns}), b = array(bias, {kColumns});
  expect_near(layer_norm(rows(), s, b), norm_of(x, scale, bias, true, 1e-5), 2e-6);
  expect_near(layer_norm(rows(), s, b, 0.5f), norm_of(x, scale, bias, true, 0.5), 2e-6);
  expect_near(rms_norm(rows(), s), norm_of(x, scale, bias, false, 1e-6), 2e-6);
  const Array half = layer_norm(astype(rows(), bf16), astype(s, bf16), astype(b, bf16));
  EXPECT_EQ(half.dtype(), bf16);
  expect_near(half, norm_of(x, scale, bias, true, 1e-5), 1e-2);
  EXPECT_EQ(rms_norm(astype(rows(), bf16), s).dtype(), f32);
  EXPECT_THROW(layer_norm(Array(1.f), s, b), ValueError);
  expect_error<ValueError>(
      [&] { layer_norm(rows(), ones({kColumns + 1}), b); },
      {"layer_norm: scale has type f32[", "x has type f32[8,16]: a scale of shape (16,)"});
  expect_error<ValueError>([&] { layer_norm(rows(), s, ones({2})); },
                           {"layer_norm: bias has type f32[2], and x has type f32[8,16]"});
  expect_error<ValueError>([&] { rms_norm(rows(), ones({2})); },
                           {"rms_norm: scale has type f32[2]"});
  EXPECT_EQ(rms_norm(rows(), ones({1})).shape(), rows().shape());
}

TEST(Layers, InABody) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto x = numbers(kRows * kColumns), scale = numbers(kColumns, 5),
             bias = numbers(kColumns, 9);
  std::vector<std::string> types;
  const auto f = shard_map(
      [&](Array block, Array s, Array b) {
        const Array y = layer_norm(block, s, b);
        types = {to_string(softmax(block).type()), to_string(y.type()), to_string(gelu(s).type())};
        return y;
      },
      mesh, {P("i"), P(), P()}, P("i"));
  expect_near(f(rows(), array(scale, {kColumns}), array(bias, {kColumns})),
              norm_of(x, scale, bias, true, 1e-5), 2e-6);
  EXPECT_EQ(types, (std::vector<std::string>{"f32[2,16]{i}", "f32[2,16]{i}", "f32[16]"}));
}

}  // namespace
}  // namespace shmap
