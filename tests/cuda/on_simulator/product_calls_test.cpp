// The calls of cuBLASLt by plans: terms, activations and destinations are parts of the product's
// call, and nothing of its size is copied or computed besides.
#include <cuda_sim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace shmap {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Lines = std::vector<std::string>;

// The products that f asks for, and the other work that ran.
struct Asked {
  Lines products, others;
};
template <class F>
Asked asked(F f) {
  shmap_sim::record_calls(true);
  f().block_until_ready();
  Asked out;
  for (const std::string& line : shmap_sim::calls())
    if (line.starts_with("cublasLtMatmul ")) out.products.push_back(line);
  for (const std::string& name : shmap_sim::executed())
    if (name != "cublasLtMatmul") out.others.push_back(name);
  shmap_sim::record_calls(false);
  return out;
}

Array some(Shape shape, DType dtype = f32) {
  const std::int64_t n = shape.num_elements();
  return astype(reshape(arange(n) % 7 - 3, shape), dtype).block_until_ready();
}

class ProductCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("SHMAP_TIME_GEMMS", "0", 1);
    setenv("SHMAP_SMALL_PRODUCTS", "0", 1);
  }
  void TearDown() override {
    unsetenv("SHMAP_SMALL_PRODUCTS");
    unsetenv("SHMAP_TIME_GEMMS");
    unsetenv("SHMAP_FUSE_PRODUCTS");
  }
};

TEST_F(ProductCalls, ABiasAndAnActivationGoAlong) {
  const Array x = some({5, 29}), w = some({29, 3}), b = some({3});
  auto f = jit([](Array x, Array w, Array b) { return relu(matmul(x, w) + b); });
  const Asked got = asked([&] { return f(x, w, b); });
  EXPECT_THAT(got.products, ElementsAre("cublasLtMatmul 3x5x29 batch 1 algorithm 0 bias relu"));
  EXPECT_THAT(got.others, IsEmpty());
  auto g = jit([](Array x, Array w) { return gelu(matmul(x, w)); });
  EXPECT_THAT(asked([&] { return g(x, w); }).products,
              ElementsAre("cublasLtMatmul 3x5x29 batch 1 algorithm 0 gelu"));
}

TEST_F(ProductCalls, TheyStayApartWhereThatIsAskedFor) {
  setenv("SHMAP_FUSE_PRODUCTS", "0", 1);
  const Array x = some({5, 29}), w = some({29, 3}), b = some({3});
  auto f = jit([](Array x, Array w, Array b) { return relu(matmul(x, w) + b); });
  const Asked got = asked([&] { return f(x, w, b); });
  EXPECT_THAT(got.products, ElementsAre("cublasLtMatmul 3x5x29 batch 1 algorithm 0"));
  EXPECT_THAT(got.others, testing::Not(IsEmpty()));
}

TEST_F(ProductCalls, WhatTheLibraryHasNoAlgorithmForIsAKernelAfterIt) {
  for (DType t : {f32, f16, bf16}) {
    const Array x = some({2, 5, 13}, t), w = some({2, 13, 6}, t), b = some({6}, t);
    const auto check = [&](auto f) {
      const std::vector<float> want = astype(f(x, w, b), f32).template to_vector<float>();
      shmap_sim::inject("cublasLtMatmulAlgoGetHeuristic", cudaErrorUnknown);
      auto g = jit(f);
      Array got;
      const Asked first = asked([&] { return got = g(x, w, b); });
      EXPECT_THAT(first.products, Each(std::string("cublasLtMatmul 6x5x13 batch 2 algorithm 0")));
      EXPECT_THAT(first.others, SizeIs(1));
      const std::vector<float> values = astype(got, f32).template to_vector<float>();
      ASSERT_EQ(values.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(values[i], want[i], (t == f32 ? 1e-6 : 1e-2) * (1 + std::abs(want[i])));
      const Asked second = asked([&] { return jit(f)(x, w, b); });
      EXPECT_THAT(second.others, SizeIs(1));  // it is not asked again
    };
    check([](Array x, Array w, Array b) { return relu(matmul(x, w) + b); });
    check([](Array x, Array w, Array b) { return gelu(matmul(x, w) + b); });
  }
}

TEST_F(ProductCalls, AnAdditionIsOneOfTheProduct) {
  const Array x = some({5, 29}), w = some({29, 3}), c = some({5, 3});
  auto f = jit([](Array x, Array w, Array c) { return c + matmul(x, w); });
  const Asked got = asked([&] { return f(x, w, c); });
  EXPECT_THAT(got.products, ElementsAre("cublasLtMatmul 3x5x29 batch 1 algorithm 0 adds"));
  EXPECT_THAT(got.others, IsEmpty());
  // A product is added in place to a value that has no other owner.
  auto g = jit([](Array x, Array w, Array v) { return matmul(x, w) + matmul(x, v); });
  EXPECT_THAT(asked([&] { return g(x, w, w * 2); }).products,
              ElementsAre("cublasLtMatmul 3x5x29 batch 1 algorithm 0",
                          "cublasLtMatmul 3x5x29 batch 1 algorithm 0 adds in place"));
}

// Timed runs of a product that adds to its result would add more than once.
TEST_F(ProductCalls, WhatIsAddedInPlaceIsNotTimed) {
  unsetenv("SHMAP_TIME_GEMMS");
  const Array x = some({6, 23}), w = some({23, 4});
  auto g = jit([](Array x, Array w, Array v) { return matmul(x, w) + matmul(x, v); });
  const std::vector<float> want = (matmul(x, w) + matmul(x, w * 2)).to_vector<float>();
  for (int call = 0; call < 3; ++call) EXPECT_EQ(g(x, w, w * 2).to_vector<float>(), want);
}

TEST_F(ProductCalls, ARingWritesIntoItsResult) {
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  const auto body = [n](Array x, Array w) {
    const Array index = axis_index("i");
    const std::int64_t rows = x.shape()[0];
    std::vector<std::pair<int, int>> left;
    for (int j = 0; j < n; ++j) left.push_back({j, (j + n - 1) % n});
    Array all = zeros({rows * n, w.shape()[1]});
    for (int i = 0; i < n; ++i) {
      const Array update = matmul(x, w);
      if (i + 1 < n) x = ppermute(x, "i", left);
      all = dynamic_update_slice(std::move(all), update, {(index + i) % n * rows, 0});
    }
    return all;
  };
  auto f = jit(shard_map(body, mesh, {P("i"), P(none, "i")}, P(none, "i")));
  const Array x = device_put(some({3 * n, 7}), NamedSharding(mesh, P("i"))),
              w = device_put(some({7, 5 * n}), NamedSharding(mesh, P(none, "i")));
  const std::vector<float> want = matmul(some({3 * n, 7}), some({7, 5 * n})).to_vector<float>();
  const Asked first = asked([&] { return f(x, w); });
  EXPECT_THAT(first.products, SizeIs(static_cast<std::size_t>(n * n)));
  EXPECT_THAT(first.products, Each(std::string("cublasLtMatmul 5x3x7 batch 1 algorithm 0")));
  EXPECT_EQ(f(x, w).to_vector<float>(), want);  // captures
  const Asked replay = asked([&] { return f(x, w); });
  EXPECT_THAT(replay.others, IsEmpty());  // no zeros are written: nothing would read them
  EXPECT_EQ(f(x, w).to_vector<float>(), want);
}

TEST_F(ProductCalls, ARingReadsSlicesWhereTheyLie) {
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  const auto body = [n](Array x, Array w) {
    const Array index = axis_index("i");
    const std::int64_t rows = x.shape()[0] / n;
    std::vector<std::pair<int, int>> right;
    for (int j = 0; j < n; ++j) right.push_back({j, (j + 1) % n});
    Array total;
    for (int i = 0; i < n; ++i) {
      const Array at = (index - i - 1) % n * rows;
      Array product = matmul(dynamic_slice(x, {at, 0}, {rows, x.shape()[1]}), w);
      total = i == 0 ? product : ppermute(std::move(total), "i", right) + std::move(product);
    }
    return total;
  };
  auto f = jit(shard_map(body, mesh, {P(none, "i"), P("i")}, P("i")));
  const Array x = device_put(some({3 * n, 4 * n}), NamedSharding(mesh, P(none, "i"))),
              w = device_put(some({4 * n, 5}), NamedSharding(mesh, P("i")));
  const std::vector<float> want = matmul(some({3 * n, 4 * n}), some({4 * n, 5})).to_vector<float>();
  const Asked first = asked([&] { return f(x, w); });
  EXPECT_THAT(first.products, SizeIs(static_cast<std::size_t>(n * n)));
  EXPECT_THAT(first.products, Each(std::string("cublasLtMatmul 5x3x4 batch 1 algorithm 0")));
  EXPECT_EQ(f(x, w).to_vector<float>(), want);  // captures
  // Additions stay apart: the products run while sums are on their way.
  EXPECT_THAT(asked([&] { return f(x, w); }).others, SizeIs(static_cast<std::size_t>(n * (n - 1))));
  EXPECT_EQ(f(x, w).to_vector<float>(), want);
}

// The launches in the log, and how many of them are dependent.
std::pair<std::int64_t, std::int64_t> launches() {
  const std::vector<std::string> all = shmap_sim::calls();
  const auto count = [&](auto f) { return std::count_if(all.begin(), all.end(), f); };
  const auto is_launch = [](const std::string& call) {
    return call.starts_with("cudaLaunchKernel") || call.starts_with("cuLaunchKernel");
  };
  return {count(is_launch),
          count([&](const std::string& c) { return is_launch(c) && c.ends_with(" dependent"); })};
}

TEST_F(ProductCalls, KernelsInTheGraphOfOneGpuAreDependentLaunches) {
  const auto f = jit([](Array x) { return cumsum(tanh(x) * 2.f, 0) + matmul(x, x); });
  const Array x = some({8, 8});
  unsetenv("SHMAP_SMALL_PRODUCTS");
  shmap_sim::record_calls(true);
  f(x).block_until_ready();  // runs eagerly
  EXPECT_GT(launches().first, 0);
  EXPECT_EQ(launches().second, 0);
  shmap_sim::record_calls(true);
  f(x).block_until_ready();  // is captured
  shmap_sim::record_calls(false);
  EXPECT_GE(launches().first, 3);
  EXPECT_EQ(launches().second, launches().first);
}

TEST_F(ProductCalls, SmallOnesAreKernelsOfThisLibrary) {
  unsetenv("SHMAP_SMALL_PRODUCTS");
  const Array x = some({6, 23}), w = some({23, 4}), b = some({4});
  auto f = jit([](Array x, Array w, Array b) { return relu(matmul(x, w) + b); });
  const Asked got = asked([&] { return f(x, w, b); });
  EXPECT_THAT(got.products, IsEmpty());
  EXPECT_THAT(got.others, SizeIs(1));
  EXPECT_EQ(f(x, w, b).to_vector<float>(), relu(matmul(x, w) + b).to_vector<float>());
  const Array deep = some({2, 600});
  EXPECT_THAT(asked([&] { return matmul(deep, some({600, 2})); }).products, SizeIs(1));
}

}  // namespace
}  // namespace shmap
