#include "core/cpu/kernels/matmul/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shmap/error.h"
#include "shmap/half.h"
#include "tests/cpu/kernels/matmul/gemm_reference.h"

namespace shmap::cpu {
namespace {

template <class T, class Out = T>
void check_many(Multiply run) {
  Rng rng(7);
  for (const auto [m, n, k] : {std::array<int, 3>{1, 1, 1},
                               {13, 65, 17},
                               {64, 64, 64},
                               {0, 5, 3},
                               {5, 0, 3},
                               {5, 3, 0},
                               {100, 33, 260}}) {
    for (int flags = 0; flags < 8; ++flags) {
      check_case<T, Out>({m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, 0}, run,
                         rng);
    }
  }
  for (int i = 0; i < 20; ++i) {
    const GemmCase c{static_cast<std::int64_t>(rng() % 70),
                     static_cast<std::int64_t>(rng() % 150),
                     static_cast<std::int64_t>(rng() % 90),
                     (rng() & 1) != 0,
                     (rng() & 1) != 0,
                     (rng() & 1) != 0,
                     static_cast<std::int64_t>(rng() % 4)};
    check_case<T, Out>(c, run, rng);
  }
  check_case<T, Out>({30, 20, 1500, false, true, true, 1}, run, rng);
}

template <GemmEngine engine>
void run_with(const Gemm& g) {
  gemm_with(engine, g);
}

TEST(Gemm, OwnKernelMatchesReferenceForEveryDtype) {
  constexpr Multiply run = run_with<GemmEngine::own>;
  check_many<bool>(run);
  check_many<std::int8_t>(run);
  check_many<std::int16_t>(run);
  check_many<std::int32_t>(run);
  check_many<std::int64_t>(run);
  check_many<std::uint8_t>(run);
  check_many<std::uint16_t>(run);
  check_many<std::uint32_t>(run);
  check_many<std::uint64_t>(run);
  check_many<float16>(run);
  check_many<float16, float>(run);
  check_many<bfloat16>(run);
  check_many<bfloat16, float>(run);
  check_many<float>(run);
  check_many<double>(run);
}

TEST(Gemm, ChosenEngineMatchesReference) {
  check_many<float>(gemm);
  check_many<double>(gemm);
  check_many<float16>(gemm);
  check_many<float16, float>(gemm);
  check_many<bfloat16>(gemm);
  check_many<bfloat16, float>(gemm);
  check_many<std::int32_t>(gemm);
}

TEST(Gemm, EveryLibraryMatchesReference) {
  if (!gemm_engine_available(GemmEngine::onednn, f32) &&
      !gemm_engine_available(GemmEngine::openblas, f32))
    GTEST_SKIP() << "this build has neither oneDNN nor OpenBLAS";
  if (gemm_engine_available(GemmEngine::onednn, f32)) {
    check_many<float>(run_with<GemmEngine::onednn>);
    check_many<bfloat16>(run_with<GemmEngine::onednn>);
    check_many<bfloat16, float>(run_with<GemmEngine::onednn>);
    check_many<float16>(run_with<GemmEngine::onednn>);
  }
  if (gemm_engine_available(GemmEngine::openblas, f32)) {
    check_many<float>(run_with<GemmEngine::openblas>);
    check_many<double>(run_with<GemmEngine::openblas>);
    check_many<float16, float>(run_with<GemmEngine::openblas>);
  }
}

TEST(Gemm, AmxMatchesReference) {
  if (!gemm_engine_available(GemmEngine::amx, bf16))
    GTEST_SKIP() << "this CPU has no AMX tiles for bf16, or the system does not let them be used";
  constexpr Multiply run = run_with<GemmEngine::amx>;
  check_many<bfloat16>(run);
  check_many<bfloat16, float>(run);
  Rng rng(5);
  for (const auto [m, n, k] : {std::array<int, 3>{20, 260, 2100},  // several blocks of columns
                               {40, 70, 3100},                     // and of k, summed in parts
                               {4100, 2, 3080},                    // and of rows with them
                               {33, 17, 513},
                               {16, 16, 32},
                               {17, 48, 1025}}) {
    for (int flags = 0; flags < 8; flags += m < 1000 ? 1 : 5) {
      const GemmCase c{m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3};
      check_case<bfloat16>(c, run, rng);
      check_case<bfloat16, float>(c, run, rng);
    }
  }
}

TEST(Gemm, Avx512MatchesReference) {
  if (!gemm_engine_available(GemmEngine::avx512, f32)) GTEST_SKIP() << "this CPU has no AVX-512";
  constexpr Multiply run = run_with<GemmEngine::avx512>;
  check_many<float>(run);
  check_many<double>(run);
  Rng rng(6);
  for (const auto [m, n, k] : {std::array<int, 3>{20, 1100, 300},  // several blocks of columns
                               {40, 70, 1300},                     // and of k, summed in parts
                               {43, 530, 1025},
                               {14, 32, 512},
                               {15, 33, 513},
                               {27, 31, 17}}) {
    for (int flags = 0; flags < 8; ++flags) {
      const GemmCase c{m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3};
      check_case<float>(c, run, rng);
      check_case<double>(c, run, rng);
    }
  }
  for (int m = 1; m <= 30; ++m) {  // every height of a tile
    const bool across = m % 4 < 2;
    check_case<float>({m, 32, 20, across, false, m % 2 != 0, 1}, run, rng);
    check_case<double>({m, 16, 20, across, false, m % 2 != 0, 1}, run, rng);
  }
  for (int n = 1; n <= 17; ++n) {  // rows of a vector or less, computed in place
    for (int m = 1; m <= 17; ++m) {
      const GemmCase c{m, n, 1 + 7 * m % 40, n % 2 != 0, false, m % 2 != 0, n % 3};
      check_case<float>(c, run, rng);
      check_case<double>(c, run, rng);
    }
  }
}

TEST(Gemm, NarrowRowsMatchReference) {
  Rng rng(7);
  for (int n = 1; n <= 17; ++n) {  // every number of lanes of one vector and of two, and one more
    for (int m = 1; m <= 17; ++m) {
      const GemmCase c{m, n, 1 + 7 * m % 40, n % 2 != 0, m % 3 == 0, m % 2 != 0, n % 3};
      check_case<float>(c, gemm, rng);
      check_case<double>(c, gemm, rng);
    }
  }
  check_case<float>({200, 11, 100, false, false, true, 1}, gemm, rng);
  check_case<double>({100, 7, 256, true, false, false, 1}, gemm, rng);
}

// gemm_of chooses once for many products; its function gives the bits of gemm.
TEST(Gemm, OneChoiceForManyProducts) {
  Rng rng(3);
  const auto check = [&]<class T>(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                                  int layout) {
    const auto numbers = [&](std::int64_t count) {
      std::vector<T> v(static_cast<std::size_t>(count));
      for (T& x : v) x = static_cast<T>(static_cast<int>(rng() % 17) - 8);
      return v;
    };
    Gemm g;
    g.dtype = g.out = dtype;
    g.m = m, g.n = n, g.k = k;
    g.trans_a = (layout & 1) != 0, g.trans_b = (layout & 2) != 0, g.accumulate = (layout & 4) != 0;
    g.lda = g.trans_a ? m : k, g.ldb = g.trans_b ? k : n, g.ldc = n;
    const GemmFn run = gemm_of(g);
    for (int i = 0; i < 3; ++i) {
      const std::vector<T> a = numbers(m * k), b = numbers(k * n), before = numbers(m * n);
      std::vector<T> expected = before, c = before;
      g.a = a.data(), g.b = b.data(), g.c = expected.data();
      gemm(g);
      g.c = c.data();
      run(g);
      ASSERT_EQ(std::memcmp(c.data(), expected.data(), c.size() * sizeof(T)), 0)
          << short_name(dtype) << ' ' << m << " x " << n << " x " << k << ", layout " << layout;
    }
  };
  for (int layout = 0; layout < 8; ++layout) {
    for (const std::int64_t m : {1, 3, 8, 17, 70})
      for (const std::int64_t n : {1, 2, 5, 16, 33})
        for (const std::int64_t k : {1, 3, 4, 7, 40}) {
          check.operator()<float>(f32, m, n, k, layout);
          check.operator()<double>(f64, m, n, k, layout);
          check.operator()<bfloat16>(bf16, m, n, k, layout);
          check.operator()<std::int32_t>(i32, m, n, k, layout);
        }
  }
  check.operator()<float>(f32, 8, 8, 70000, 0);  // whose sums are divided
  for (const auto [m, n, k] : {std::array<std::int64_t, 3>{0, 3, 4}, {3, 0, 4}, {3, 4, 0}})
    check.operator()<float>(f32, m, n, k, 0);
}

TEST(Gemm, AmxPassesInfinitiesAndNans) {
  if (!gemm_engine_available(GemmEngine::amx, bf16))
    GTEST_SKIP() << "this CPU has no AMX tiles for bf16, or the system does not let them be used";
  const auto inf = bfloat16(INFINITY), one = bfloat16(1.f), zero = bfloat16(0.f);
  const std::vector<bfloat16> a = {inf, one, zero, bfloat16(-INFINITY)};
  const std::vector<bfloat16> b = {one, zero, bfloat16(2.f), bfloat16(3.f)};
  std::vector<bfloat16> c(4, bfloat16(9.f));
  Gemm g;
  g.dtype = g.out = bf16;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 2;
  g.a = a.data(), g.b = b.data(), g.c = c.data();
  gemm_with(GemmEngine::amx, g);
  EXPECT_EQ(static_cast<float>(c[0]), INFINITY);
  EXPECT_TRUE(std::isnan(static_cast<float>(c[1])));
  EXPECT_EQ(static_cast<float>(c[2]), -INFINITY);
  EXPECT_EQ(static_cast<float>(c[3]), -INFINITY);
}

TEST(Gemm, PartsCoverTheProduct) {
  check_many<float>(run_in_parts);
  check_many<std::int32_t>(run_in_parts);
  check_many<bfloat16>(run_in_parts);
  check_many<bool>(run_in_parts);
}

TEST(Gemm, HalfTypesRoundOnceAndLargeSizesCrossEveryBlock) {
  Rng rng(3);
  check_case<float16>({9, 1040, 1030, true, false, true, 3}, gemm, rng);
  check_case<bfloat16>({9, 1040, 1030, false, true, true, 0}, gemm, rng);
  check_case<bfloat16>({800, 80, 1700, false, false, true, 0}, gemm, rng);    // by columns
  check_case<bfloat16>({780, 1024, 900, false, false, false, 0}, gemm, rng);  // reordered
  check_case<bfloat16>({800, 256, 760, true, true, true, 2}, gemm, rng);      // transposed
  if (gemm_engine_available(GemmEngine::onednn, bf16)) {
    constexpr Multiply run = run_with<GemmEngine::onednn>;
    check_case<bfloat16>({800, 80, 1700, false, false, true, 0}, run, rng);
    check_case<bfloat16>({780, 1024, 900, false, false, false, 0}, run, rng);
    check_case<bfloat16>({800, 256, 760, true, true, true, 2}, run, rng);
  }
  check_case<float>({230, 40, 520, false, false, false, 0}, gemm, rng);
  for (const bool across : {false, true}) {  // by AVX-512, where there is one
    check_case<float>({230, 140, 250, across, false, true, 1}, gemm, rng);
    check_case<double>({130, 140, 300, across, across, false, 1}, gemm, rng);
  }
  check_case<std::int32_t>({230, 2060, 20, true, true, true, 5}, run_with<GemmEngine::own>, rng);
  check_case<std::int32_t>({230, 40, 520, false, false, true, 5}, run_with<GemmEngine::own>, rng);
  for (const bool across : {false, true}) {  // more rows than sums are kept of
    check_case<std::int8_t>({4500, 20, 530, across, false, true, 1}, run_with<GemmEngine::own>,
                            rng);
    check_case<bfloat16>({4500, 20, 530, false, across, across, 1}, run_with<GemmEngine::own>, rng);
  }
}

TEST(Gemm, InfinitiesAndNansPass) {
  const float inf = INFINITY;
  std::vector<float> a = {inf, 1.f, 0.f, -inf}, b = {1.f, 0.f, 2.f, 3.f}, c(4, 9.f);
  for (const auto engine :
       {GemmEngine::own, GemmEngine::avx512, GemmEngine::onednn, GemmEngine::openblas}) {
    if (!gemm_engine_available(engine, f32)) continue;
    Gemm g;
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 2;
    g.a = a.data(), g.b = b.data(), g.c = c.data();
    gemm_with(engine, g);
    EXPECT_EQ(c[0], inf) << to_string(engine);
    EXPECT_TRUE(std::isnan(c[1])) << to_string(engine);
    EXPECT_EQ(c[2], -inf) << to_string(engine);
    EXPECT_EQ(c[3], -inf) << to_string(engine);
  }
}

// Ones but for one element of an operand, which is infinite: its row or column of c is, and the
// other elements are k.
void check_infinity(GemmEngine engine, DType dtype, Gemm g, std::int64_t extra, bool in_b,
                    std::int64_t at) {
  g.dtype = g.out = dtype;
  g.lda = (g.trans_a ? g.m : g.k) + extra;
  g.ldb = (g.trans_b ? g.k : g.n) + extra;
  g.ldc = g.n + extra;
  const float inf = at % 2 == 0 ? INFINITY : -INFINITY;
  std::vector<float> a(static_cast<std::size_t>((g.trans_a ? g.k : g.m) * g.lda), 1.f),
      b(static_cast<std::size_t>((g.trans_b ? g.n : g.k) * g.ldb), 1.f);
  const std::int64_t line = in_b ? g.n - 1 : g.m - 1;  // of c, whose sums are infinite
  if (in_b)
    b[static_cast<std::size_t>(g.trans_b ? line * g.ldb + at : at * g.ldb + line)] = inf;
  else
    a[static_cast<std::size_t>(g.trans_a ? at * g.lda + line : line * g.lda + at)] = inf;
  const std::vector<bfloat16> narrow_a(a.begin(), a.end()), narrow_b(b.begin(), b.end());
  std::vector<float> c(static_cast<std::size_t>(g.m * g.ldc));
  std::vector<bfloat16> narrow_c(c.begin(), c.end());
  const bool narrow = dtype == bf16;
  g.a = narrow ? static_cast<const void*>(narrow_a.data()) : a.data();
  g.b = narrow ? static_cast<const void*>(narrow_b.data()) : b.data();
  g.c = narrow ? static_cast<void*>(narrow_c.data()) : c.data();
  gemm_with(engine, g);
  if (narrow) c.assign(narrow_c.begin(), narrow_c.end());
  const auto finite =
      narrow ? static_cast<float>(bfloat16(static_cast<float>(g.k))) : static_cast<float>(g.k);
  int wrong = 0;
  for (std::int64_t i = 0; i < g.m; ++i) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      const float want = (in_b ? j : i) == line ? inf : finite;
      if (c[static_cast<std::size_t>(i * g.ldc + j)] != want) ++wrong;
    }
  }
  EXPECT_EQ(wrong, 0) << to_string(engine) << " " << short_name(dtype) << " " << g.m << "x" << g.n
                      << "x" << g.k << " trans " << g.trans_a << g.trans_b << " extra " << extra
                      << (in_b ? ", b's element " : ", a's element ") << at;
}

// oneDNN's kernels that sum pairs multiply the last element of an odd k by a zero too.
TEST(Gemm, InfinitiesAtEachEndOfASumPass) {
  for (const auto engine : {GemmEngine::own, GemmEngine::amx, GemmEngine::avx512,
                            GemmEngine::onednn, GemmEngine::openblas}) {
    for (const DType dtype : {f32, bf16}) {
      if (!gemm_engine_available(engine, dtype)) continue;
      Gemm g;
      for (const std::int64_t k : {1, 3, 7, 33, 193, 257}) {
        for (int flags = 0; flags < 16; ++flags) {
          const bool wide = (flags & 8) != 0;
          g.m = wide ? 33 : 3, g.n = wide ? 100 : 17, g.k = k;
          g.trans_a = (flags & 1) != 0, g.trans_b = (flags & 2) != 0;
          const bool in_b = (flags & 4) != 0;
          for (const std::int64_t extra : {0, 7}) {
            check_infinity(engine, dtype, g, extra, in_b, 0);
            check_infinity(engine, dtype, g, extra, in_b, k - 1);
          }
        }
      }
      g.m = 800, g.n = 512;  // reordered, in blocks of columns, and transposed
      for (const std::int64_t k : {1025, 1701}) {
        g.k = k, g.trans_b = false;
        for (const bool across : {false, true}) {
          g.trans_a = across;
          check_infinity(engine, dtype, g, 0, false, k - 1);
        }
      }
    }
  }
}

// The same values, computed whole and by two workers.
TEST(Gemm, InfinitiesDoNotDependOnTheParts) {
  constexpr std::int64_t m = 33, n = 200, k = 193;
  std::vector<bfloat16> a(m * k, bfloat16(1.f)), b(k * n, bfloat16(1.f));
  a[k - 1] = bfloat16(INFINITY);
  std::vector<bfloat16> whole(m * n), parts(m * n);
  Gemm g;
  g.dtype = g.out = bf16;
  g.m = m, g.n = n, g.k = k, g.lda = k, g.ldb = n, g.ldc = n;
  g.a = a.data(), g.b = b.data(), g.c = whole.data();
  gemm(g);
  g.c = parts.data();
  for (int part = 0; part < 2; ++part) gemm_part(g, part, 2);
  EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(bfloat16)), 0);
  EXPECT_EQ(static_cast<float>(parts[n - 1]), INFINITY);
}

TEST(Gemm, WrappedInt32HasTheKnownValues) {
  // A = arange(4096 * 2048) and B = arange(2048 * 1024), as int32, multiplied modulo 2^32.
  constexpr std::int64_t k = 2048, n = 1024;
  std::vector<std::int32_t> b(static_cast<std::size_t>(k * n));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<std::int32_t>(i);
  struct Known {
    std::int64_t row, col;
    std::int32_t value;
  };
  std::vector<std::int32_t> a(static_cast<std::size_t>(k)), c(static_cast<std::size_t>(n));
  for (const Known known :
       {Known{0, 0, 716177408}, Known{0, 1, 718273536}, Known{1, 0, -1431306240},
        Known{2048, 512, 1789394944}, Known{4095, 1023, 717227008}}) {
    for (std::int64_t l = 0; l < k; ++l)
      a[static_cast<std::size_t>(l)] = static_cast<std::int32_t>(known.row * k + l);
    Gemm g;
    g.dtype = g.out = i32;
    g.m = 1, g.n = n, g.k = k, g.lda = k, g.ldb = n, g.ldc = n;
    g.a = a.data(), g.b = b.data(), g.c = c.data();
    gemm(g);
    EXPECT_EQ(c[static_cast<std::size_t>(known.col)], known.value) << known.row << " " << known.col;
  }
}

TEST(Gemm, RunsOnSeveralThreadsAtOnceWithTheSameBits) {
  constexpr std::int64_t m = 150, n = 170, k = 160;
  Rng rng(11);
  std::vector<float> a(m * k), b(k * n), want(m * n);
  std::uniform_real_distribution<float> uniform(-1.f, 1.f);
  for (float& v : a) v = uniform(rng);
  for (float& v : b) v = uniform(rng);
  Gemm g;
  g.m = m, g.n = n, g.k = k, g.lda = k, g.ldb = n, g.ldc = n;
  g.a = a.data(), g.b = b.data(), g.c = want.data();
  gemm(g);
  std::vector<std::vector<float>> got(4, std::vector<float>(m * n));
  std::vector<std::thread> threads;
  for (auto& c : got) {
    threads.emplace_back([&c, g]() mutable {
      g.c = c.data();
      for (int i = 0; i < 20; ++i) gemm(g);
    });
  }
  for (auto& t : threads) t.join();
  for (const auto& c : got) EXPECT_EQ(0, std::memcmp(c.data(), want.data(), sizeof(float) * m * n));
}

// The AVX-512 kernel reads rows of a that are some number of elements apart where they are, and
// copies others.
template <class T>
void check_rows_in_place(DType dtype, std::int64_t lda, Rng& rng) {
  std::uniform_real_distribution<T> uniform(-1, 1);
  const std::int64_t n = 70;
  for (const std::int64_t m : {1, 13, 14, 15, 40, 100}) {
    for (const std::int64_t k : {1, 5, 64, 200, 256}) {
      std::vector<T> a(static_cast<std::size_t>(m * lda)), b(static_cast<std::size_t>(k * n));
      for (T& x : a) x = uniform(rng);
      for (T& x : b) x = uniform(rng);
      std::vector<T> apart(static_cast<std::size_t>(m * (lda + 1)));
      for (std::int64_t i = 0; i < m; ++i)
        std::copy_n(a.begin() + i * lda, lda, apart.begin() + i * (lda + 1));
      std::vector<T> in_place(static_cast<std::size_t>(m * n), T{1}), copied = in_place;
      Gemm g;
      g.dtype = g.out = dtype;
      g.m = m, g.n = n, g.k = k, g.ldb = g.ldc = n;
      g.b = b.data();
      for (const bool accumulate : {false, true}) {
        g.accumulate = accumulate;
        g.a = a.data(), g.lda = lda, g.c = in_place.data();
        gemm_with(GemmEngine::avx512, g);
        g.a = apart.data(), g.lda = lda + 1, g.c = copied.data();
        gemm_with(GemmEngine::avx512, g);
        EXPECT_EQ(in_place, copied) << m << "x" << n << "x" << k;
      }
    }
  }
}

TEST(Gemm, RowsThatAreReadInPlaceGiveTheSameBits) {
  if (!gemm_engine_available(GemmEngine::avx512, f32)) GTEST_SKIP() << "needs AVX-512";
  Rng rng(29);
  check_rows_in_place<float>(f32, 272, rng);
  check_rows_in_place<double>(f64, 264, rng);
}

// How many elements of c part `part` of `parts` writes.
std::int64_t elements_of_part(Gemm g, int part, int parts, std::vector<float>& c) {
  std::fill(c.begin(), c.end(), std::numeric_limits<float>::quiet_NaN());
  g.c = c.data();
  gemm_part(g, part, parts);
  return std::count_if(c.begin(), c.end(), [](float x) { return !std::isnan(x); });
}

TEST(Gemm, PartsHaveAboutTheSameSize) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{100, 100, 100},
                                {300, 300, 20},
                                {500, 700, 64},
                                {333, 257, 30},
                                {1001, 999, 10},
                                {8, 400, 100},
                                {60, 200, 20}}) {
    const std::vector<float> a(static_cast<std::size_t>(m * k), 1.f);
    const std::vector<float> b(static_cast<std::size_t>(k * n), 1.f);
    std::vector<float> c(static_cast<std::size_t>(m * n));
    for (int flags = 0; flags < 4; ++flags) {
      Gemm g;
      g.m = m, g.n = n, g.k = k;
      g.trans_a = (flags & 1) != 0, g.trans_b = (flags & 2) != 0;
      g.lda = g.trans_a ? m : k, g.ldb = g.trans_b ? k : n, g.ldc = n;
      g.a = a.data(), g.b = b.data();
      for (const int parts : {2, 4}) {
        std::int64_t all = 0, largest = 0;
        for (int part = 0; part < parts; ++part) {
          const std::int64_t here = elements_of_part(g, part, parts, c);
          all += here;
          largest = std::max(largest, here);
        }
        EXPECT_EQ(all, m * n);
        EXPECT_LE(static_cast<double>(largest * parts), 1.125 * static_cast<double>(m * n))
            << m << "x" << n << "x" << k << " in " << parts << " parts, flags " << flags;
      }
    }
  }
}

// `given` + a · b has the same bits by an addition after the product and by accumulation.
void check_accumulation(Gemm g, bool in_parts, Rng& rng) {
  std::uniform_real_distribution<float> uniform(-1.f, 1.f);
  const auto floats = [&](std::int64_t count) {
    std::vector<float> v(static_cast<std::size_t>(count));
    for (float& x : v) x = uniform(rng);
    return v;
  };
  const std::vector<float> a = floats(g.m * g.k), b = floats(g.k * g.n), given = floats(g.m * g.n);
  g.lda = g.trans_a ? g.m : g.k, g.ldb = g.trans_b ? g.k : g.n, g.ldc = g.n;
  g.a = a.data(), g.b = b.data();
  const auto run = [&](std::vector<float>& c, bool accumulate) {
    g.c = c.data();
    g.accumulate = accumulate;
    const int parts = in_parts ? 2 : 1;
    for (int part = 0; part < parts; ++part) gemm_part(g, part, parts);
  };
  std::vector<float> product(given.size()), got = given;
  run(product, false);
  for (std::size_t i = 0; i < product.size(); ++i) product[i] += given[i];
  run(got, true);
  EXPECT_EQ(got, product) << g.m << "x" << g.n << "x" << g.k << " trans " << g.trans_a << g.trans_b;
}

TEST(Gemm, AccumulatesWithTheBitsOfAnAdditionWhereItSaysSo) {
  Rng rng(23);
  for (const std::int64_t k : {1, 2, 31, 64, 100, 193, 256, 257, 512}) {
    for (const std::int64_t m : {1, 2, 3, 16, 48, 100, 512}) {
      for (const std::int64_t n : {1, 2, 5, 64, 100, 256, 500, 1024}) {
        Gemm g;
        g.m = m, g.n = n, g.k = k;
        g.trans_a = (rng() & 1u) != 0, g.trans_b = (rng() & 1u) != 0;
        const GemmEngine engine = gemm_engine(g);
        const std::int64_t longest = engine == GemmEngine::onednn && g.trans_a ? 96 : 256;
        const bool exact = engine != GemmEngine::own && m > 1 && n > 1 && k <= longest;
        EXPECT_EQ(gemm_accumulates_exactly(g), exact)
            << m << "x" << n << "x" << k << " trans " << g.trans_a << g.trans_b;
        if (!exact) continue;
        check_accumulation(g, false, rng);
        check_accumulation(g, true, rng);
      }
    }
  }
  Gemm large;  // by the kernel for AVX-512 on Intel's CPUs that have it
  large.m = 512, large.n = 1024, large.k = 256;
  if (gemm_engine(large) != GemmEngine::own) {
    EXPECT_TRUE(gemm_accumulates_exactly(large));
    check_accumulation(large, false, rng);
    check_accumulation(large, true, rng);
  }
  Gemm plain;
  plain.m = plain.n = plain.k = 64;
  plain.k = 1024;  // summed in pieces
  EXPECT_FALSE(gemm_accumulates_exactly(plain));
  plain.k = 64;
  plain.dtype = plain.out = bf16;  // the product is rounded
  EXPECT_FALSE(gemm_accumulates_exactly(plain));
  plain.dtype = plain.out = i32;
  EXPECT_TRUE(gemm_accumulates_exactly(plain));
}

TEST(Gemm, RefusesOtherDtypes) {
  Gemm g;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 1;
  g.dtype = g.out = prng_key;
  EXPECT_THROW(gemm(g), TypeError);
  g.dtype = f32, g.out = f64;
  EXPECT_THROW(gemm(g), TypeError);
  g.dtype = i32, g.out = i64;
  EXPECT_THROW(gemm(g), TypeError);
  g.dtype = g.out = i32;
  EXPECT_THROW(gemm_with(GemmEngine::onednn, g), TypeError);
}

TEST(Gemm, SmallProductsAreNotCut) {
  Gemm g;
  g.m = g.n = g.k = 8;
  EXPECT_EQ(gemm_parts(g, 8), 1);
  g.m = g.n = g.k = 1024;
  EXPECT_GE(gemm_parts(g, 2), 2);
}

}  // namespace
}  // namespace shmap::cpu
