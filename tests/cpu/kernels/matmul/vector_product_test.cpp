// Products of a matrix and a vector.
#include "core/cpu/kernels/matmul/vector_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "shmap/half.h"
#include "tests/cpu/kernels/matmul/gemm_reference.h"

namespace shmap::cpu {
namespace {

template <class T, class Out = T>
void check_vectors() {
  Rng rng(31);
  for (const std::int64_t k : {0, 1, 8, 17, 65, 200}) {
    for (const std::int64_t n : {1, 2, 15, 16, 33, 1025}) {
      if (n * k > 20000) continue;
      for (int flags = 0; flags < 8; ++flags) {
        const bool trans_a = (flags & 1) != 0, trans_b = (flags & 2) != 0, add = (flags & 4) != 0;
        const auto extra = static_cast<std::int64_t>(rng() % 3);
        check_case<T, Out>({1, n, k, trans_a, trans_b, add, extra}, gemm, rng);
        check_case<T, Out>({n, 1, k, trans_a, trans_b, add, extra}, gemm, rng);
      }
    }
  }
}

TEST(VectorProduct, MatchesTheReference) {
  check_vectors<float>();
  check_vectors<double>();
  check_vectors<bfloat16>();
  check_vectors<bfloat16, float>();
  check_vectors<float16>();
  check_vectors<std::int32_t>();
}

// A product of a matrix and a vector that is cut along its results keeps all bits.
TEST(VectorProduct, PartsHaveTheBitsOfTheWhole) {
  if (!is_vector_product({.m = 1, .n = 64, .k = 64}))
    GTEST_SKIP() << "this CPU has no kernels for a matrix and a vector";
  Rng rng(37);
  std::normal_distribution<float> normal;
  constexpr std::int64_t n = 1500, k = 333;
  std::vector<float> matrix(n * k), vector(n), whole(n), cut(n);
  for (float& v : matrix) v = normal(rng);
  for (float& v : vector) v = normal(rng);
  for (const bool row : {false, true}) {
    for (const bool transposed : {false, true}) {
      Gemm g;
      g.m = row ? 1 : n, g.n = row ? n : 1, g.k = k;
      g.a = row ? vector.data() : matrix.data();
      g.b = row ? matrix.data() : vector.data();
      (row ? g.trans_b : g.trans_a) = transposed;
      g.lda = row ? k : transposed ? n : k;
      g.ldb = row ? (transposed ? k : n) : 1;
      g.ldc = row ? n : 1;
      g.c = whole.data();
      gemm(g);
      g.c = cut.data();
      run_in_parts(g);
      EXPECT_EQ(std::memcmp(whole.data(), cut.data(), sizeof(float) * n), 0) << row << transposed;
    }
  }
}

// Long sums that are cut in blocks, which any number of parts may share, keep all bits and their
// accuracy.
template <class T, class Compute>
void check_long_sums(std::int64_t results, std::int64_t k, std::int64_t stride) {
  Rng rng(53);
  std::vector<T> matrix(static_cast<std::size_t>(results * k)), vector;
  for (T& v : matrix) v = random_value<T>(rng);
  for (std::int64_t i = 0; i < k * stride; ++i) vector.push_back(random_value<T>(rng));
  std::vector<T> whole(static_cast<std::size_t>(results)), cut(whole), exact(whole);
  Gemm g;
  g.dtype = g.out = dtype_of<T>;
  g.m = results, g.n = 1, g.k = k;
  g.a = matrix.data(), g.lda = k;
  g.b = vector.data(), g.ldb = stride;
  g.ldc = 1;
  ASSERT_TRUE(has_long_sums(g));
  g.c = exact.data();
  multiply_by_loops<T, T>(g, exact.data());
  g.c = whole.data();
  gemm(g);
  EXPECT_EQ(std::memcmp(whole.data(), exact.data(), whole.size() * sizeof(T)), 0);
  for (T& v : matrix) v = static_cast<T>(static_cast<float>(v) * 1.1f);  // sums that round
  gemm(g);
  const std::int64_t blocks = sum_block_count(k);
  for (const std::int64_t at : {std::int64_t{1}, blocks / 2, blocks - 1}) {
    std::vector<Compute> partials(static_cast<std::size_t>(blocks * results), Compute(NAN));
    ASSERT_EQ(long_sums_bytes(g), static_cast<std::int64_t>(partials.size() * sizeof(Compute)));
    sum_blocks(g, at, blocks, partials.data());
    sum_blocks(g, 0, at, partials.data());
    g.c = cut.data();
    finish_long_sums(g, partials.data());
    EXPECT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(T)), 0)
        << results << " " << k << " " << at;
  }
  // A result has the same bits when it is computed alone.
  g.m = 1;
  g.c = cut.data();
  gemm(g);
  EXPECT_EQ(std::memcmp(whole.data(), cut.data(), sizeof(T)), 0);
}

TEST(VectorProduct, PartsOfLongSumsHaveTheBitsOfTheWhole) {
  if (!is_vector_product({.m = 1, .n = 64, .k = 64}))
    GTEST_SKIP() << "this CPU has no kernels for a matrix and a vector";
  check_long_sums<float, float>(1, kSumBlock + 1, 1);
  check_long_sums<float, float>(3, 3 * kSumBlock - 7, 2);
  check_long_sums<double, double>(37, 2 * kSumBlock, 1);
  check_long_sums<bfloat16, float>(2, 5 * kSumBlock + 33, 3);
  check_long_sums<float16, float>(1, 2 * kSumBlock + 1, 1);
  EXPECT_FALSE(has_long_sums({.m = 1, .n = 1, .k = kSumBlock}));
}

TEST(VectorProduct, PassesInfinitiesAndNans) {
  constexpr std::int64_t k = 37;
  const float inf = HUGE_VALF;
  std::vector<float> matrix(2 * k, 1.f), vector(k, 1.f);
  matrix[k - 1] = inf;
  matrix[2 * k - 1] = NAN;
  float out[2];
  Gemm g;
  g.m = 2, g.n = 1, g.k = k, g.lda = k, g.ldb = 1, g.ldc = 1;
  g.a = matrix.data(), g.b = vector.data(), g.c = out;
  gemm(g);
  EXPECT_EQ(out[0], inf);
  EXPECT_TRUE(std::isnan(out[1]));
}

}  // namespace
}  // namespace shmap::cpu
