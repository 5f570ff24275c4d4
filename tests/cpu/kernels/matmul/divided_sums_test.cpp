// Products whose sums are divided into pieces: which ones, their values beside sums in double, and
// the same bits in whatever parts the pieces are computed.
#include "core/cpu/kernels/matmul/divided_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/ops/dot.h"
#include "core/runtime/kernel.h"
#include "shmap/half.h"
#include "shmap/ops.h"

namespace shmap::cpu {
namespace {

using Rng = std::mt19937_64;

template <class T, class Out>
struct Product {
  Gemm gemm;
  std::vector<T> a, b;
  std::vector<Out> c;

  // Rows lie `extra` elements apart. `whole`: multiples of 1/4 in [-2, 2], whose sums are exact.
  Product(std::int64_t m, std::int64_t n, std::int64_t k, int flags, std::int64_t extra, bool whole,
          Rng& rng) {
    gemm.dtype = dtype_of<T>, gemm.out = dtype_of<Out>;
    gemm.m = m, gemm.n = n, gemm.k = k;
    gemm.trans_a = (flags & 1) != 0, gemm.trans_b = (flags & 2) != 0;
    gemm.accumulate = (flags & 4) != 0;
    gemm.lda = (gemm.trans_a ? m : k) + extra;
    gemm.ldb = (gemm.trans_b ? k : n) + extra;
    gemm.ldc = n + extra;
    std::normal_distribution<float> normal;
    const auto fill = [&](auto& v, std::int64_t count) {
      v.resize(static_cast<std::size_t>(count));
      using V = typename std::decay_t<decltype(v)>::value_type;
      for (V& x : v)
        x = static_cast<V>(whole ? static_cast<float>(static_cast<int>(rng() % 17) - 8) / 4.f
                                 : normal(rng));
    };
    fill(a, (gemm.trans_a ? k : m) * gemm.lda);
    fill(b, (gemm.trans_b ? n : k) * gemm.ldb);
    fill(c, m * gemm.ldc);
    gemm.a = a.data(), gemm.b = b.data(), gemm.c = c.data();
  }

  // The sum for result (i, j) in double, what c holds included, and the sum of magnitudes.
  struct Sum {
    double value, magnitude;
  };
  Sum sum(std::int64_t i, std::int64_t j) const {
    const auto at = [](const auto& v, std::int64_t index) {
      return static_cast<double>(v[static_cast<std::size_t>(index)]);
    };
    const Gemm& g = gemm;
    Sum s{g.accumulate ? at(c, i * g.ldc + j) : 0., 0.};
    for (std::int64_t l = 0; l < g.k; ++l) {
      const double term = at(a, g.trans_a ? l * g.lda + i : i * g.lda + l) *
                          at(b, g.trans_b ? j * g.ldb + l : l * g.ldb + j);
      s.value += term;
      s.magnitude += std::abs(term);
    }
    return s;
  }
  bool has_bits(const std::vector<Out>& other) const {
    return std::memcmp(c.data(), other.data(), c.size() * sizeof(Out)) == 0;
  }
};

Gemm sizes(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = f32) {
  Gemm g;
  g.dtype = g.out = dtype;
  g.m = m, g.n = n, g.k = k;
  g.lda = k, g.ldb = g.ldc = n;
  return g;
}

TEST(DividedSums, OfFewResultsAndManyTerms) {
  EXPECT_EQ(sum_pieces(sizes(32, 32, 20000)), 8);
  EXPECT_EQ(sum_pieces(sizes(32, 32, 20000, bf16)), 8);
  EXPECT_EQ(sum_pieces(sizes(32, 32, 200000)), 16);
  EXPECT_EQ(sum_pieces(sizes(64, 64, 4096)), 2);
  EXPECT_EQ(sum_pieces(sizes(64, 64, 3071)), 1);   // short sums
  EXPECT_EQ(sum_pieces(sizes(4, 4, 20000)), 1);    // little work
  EXPECT_EQ(sum_pieces(sizes(512, 64, 8192)), 1);  // results enough for several threads
  EXPECT_EQ(sum_pieces(sizes(1, 64, 20000)), 1);   // a vector
  EXPECT_EQ(sum_pieces(sizes(32, 32, 20000, i32)), 1);
  EXPECT_EQ(gemm_parts(sizes(32, 32, 20000), 2), 2);
  EXPECT_EQ(gemm_parts(sizes(32, 32, 20000), 64), 8);
}

// Compares with the exact values, which are rounded once.
template <class T, class Out = T>
void check_exact(std::int64_t m, std::int64_t n, std::int64_t k) {
  Rng rng(17);
  for (int flags = 0; flags < 8; ++flags) {
    SCOPED_TRACE(std::string(short_name(dtype_of<T>)) + " flags " + std::to_string(flags));
    Product<T, Out> p(m, n, k, flags, flags % 3, true, rng);
    ASSERT_GT(sum_pieces(p.gemm), 1);
    const std::vector<Out> given = p.c;
    std::vector<typename Product<T, Out>::Sum> want;
    for (const std::int64_t i : {std::int64_t{0}, m / 2, m - 1})
      for (std::int64_t j = 0; j < n; ++j) want.push_back(p.sum(i, j));
    gemm(p.gemm);
    std::size_t at = 0;
    for (const std::int64_t i : {std::int64_t{0}, m / 2, m - 1}) {
      for (std::int64_t j = 0; j < p.gemm.ldc; ++j) {
        const auto index = static_cast<std::size_t>(i * p.gemm.ldc + j);
        const Out expected =
            j < n ? static_cast<Out>(static_cast<float>(want[at++].value)) : given[index];
        EXPECT_EQ(static_cast<float>(p.c[index]), static_cast<float>(expected)) << i << ", " << j;
      }
    }
  }
}

TEST(DividedSums, MatchTheReference) {
  check_exact<float>(31, 17, 10007);
  check_exact<double>(18, 33, 4099);
  check_exact<bfloat16>(31, 17, 10007);
  check_exact<bfloat16, float>(23, 19, 5001);
  check_exact<float16>(19, 31, 8191);
  check_exact<float16, float>(40, 18, 4100);
}

TEST(DividedSums, AreAsAccurateAsTheirTypeAllows) {
  Rng rng(19);
  Product<float, float> p(33, 31, 20011, 0, 0, false, rng);
  ASSERT_GT(sum_pieces(p.gemm), 1);
  gemm(p.gemm);
  for (std::int64_t i = 0; i < p.gemm.m; i += 16)
    for (std::int64_t j = 0; j < p.gemm.n; ++j) {
      const auto s = p.sum(i, j);
      EXPECT_NEAR(p.c[static_cast<std::size_t>(i * p.gemm.ldc + j)], s.value, 1e-6 * s.magnitude);
    }
}

// Pieces give the bits of the whole in whatever order and shares they are computed.
template <class T, class Out, class Compute>
void check_shares(std::int64_t m, std::int64_t n, std::int64_t k, int flags) {
  Rng rng(23);
  Product<T, Out> p(m, n, k, flags, 1, false, rng);
  const std::int64_t pieces = sum_pieces(p.gemm);
  ASSERT_GT(pieces, 1);
  const std::vector<Out> given = p.c;
  gemm(p.gemm);
  const std::vector<Out> whole = p.c;
  EXPECT_FALSE(given == whole);
  for (const std::int64_t at : {std::int64_t{1}, pieces / 2, pieces - 1}) {
    std::vector<Compute> partials(static_cast<std::size_t>(pieces * m * n),
                                  std::numeric_limits<Compute>::quiet_NaN());
    ASSERT_EQ(partial_results_bytes(p.gemm),
              static_cast<std::int64_t>(partials.size() * sizeof(Compute)));
    p.c = given;
    run_sum_pieces(p.gemm, at, pieces, partials.data());
    run_sum_pieces(p.gemm, 0, at, partials.data());
    EXPECT_TRUE(p.has_bits(given)) << "a piece has written to the result";
    finish_sum_pieces(p.gemm, partials.data());
    EXPECT_TRUE(p.has_bits(whole)) << m << "x" << n << "x" << k << " flags " << flags << " " << at;
  }
}

TEST(DividedSums, SharesOfPiecesHaveTheBitsOfTheWhole) {
  check_shares<float, float, float>(32, 32, 20000, 0);
  for (int flags = 0; flags < 8; ++flags) {
    check_shares<float, float, float>(13, 29, 9001, flags);
  }
  for (const int flags : {1, 6}) {
    check_shares<double, double, double>(17, 30, 7777, flags);
    check_shares<bfloat16, bfloat16, float>(33, 15, 8193, flags);
    check_shares<float16, float, float>(20, 20, 6001, flags);
  }
}

// The kernel of dot_general gives the same bits for every number of threads, also where it batches
// products and where it copies operands to another order first.
TEST(DividedSums, PartsOfACallDoNotShow) {
  const Array started = array<float>({1}, {1});  // registers the kernels
  struct Case {
    const char* what;
    Shape a, b;
    DotParams params;
    bool packed;
  };
  Case cases[4];
  cases[0] = {"plain", {32, 20000}, {20000, 32}, {}, false};
  cases[1] = {"batch", {3, 24, 5000}, {3, 5000, 40}, {}, false};
  cases[2] = {"weights", {9000, 48}, {9000, 33}, {}, false};
  cases[3] = {"packed", {3000, 16, 3}, {3, 3000, 40}, {}, true};
  cases[0].params.lhs_contracting = {1}, cases[0].params.rhs_contracting = {0};
  cases[1].params.lhs_contracting = {2}, cases[1].params.rhs_contracting = {1};
  cases[1].params.lhs_batch = {0}, cases[1].params.rhs_batch = {0};
  cases[2].params.lhs_contracting = {0}, cases[2].params.rhs_contracting = {0};
  cases[3].params.lhs_contracting = {0, 2}, cases[3].params.rhs_contracting = {1, 0};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Rng rng(29);
    std::normal_distribution<float> normal;
    std::vector<float> a(static_cast<std::size_t>(c.a.num_elements())),
        b(static_cast<std::size_t>(c.b.num_elements()));
    for (float& x : a) x = normal(rng);
    for (float& x : b) x = normal(rng);
    const ShapedArray in_types[2] = {ShapedArray(c.a, f32), ShapedArray(c.b, f32)};
    ShapedArray out_type[1];
    infer_types(dot_general_p, in_types, c.params, nullptr, out_type);
    const Kernel& kernel = dot_general_p.kernel(DeviceKind::cpu);
    std::vector<float> first;
    for (const int workers : {1, 2, 3, 7, 64}) {
      std::vector<float> out(static_cast<std::size_t>(out_type[0].size()), NAN);
      const void* const ins[2] = {a.data(), b.data()};
      void* const outs[1] = {out.data()};
      KernelCall call{ins, outs, in_types, out_type, c.params};
      call.parts = workers == 1 ? 1 : kernel.parts(call, workers);
      EXPECT_GE(call.parts, c.packed ? 1 : std::min(workers, 4));
      std::vector<float> scratch;
      if (call.parts > 1) {
        const auto count = static_cast<std::size_t>(kernel.scratch(call)) / sizeof(float);
        scratch.assign(count, NAN);
      }
      if (!scratch.empty()) call.scratch = scratch.data();
      for (call.part = call.parts - 1; call.part >= 0; --call.part) kernel.run(call);
      if (call.scratch != nullptr) {
        EXPECT_TRUE(std::isnan(out[0])) << "a part has written to the result";
        kernel.finish(call);
      }
      if (first.empty()) first = out;
      EXPECT_EQ(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)), 0) << workers;
      for (const float x : out) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace shmap::cpu
