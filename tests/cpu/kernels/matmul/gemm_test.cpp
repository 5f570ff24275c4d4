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

#include "core/cpu/kernels/matmul/vector_product.h"
#include "shmap/error.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

using Rng = std::mt19937_64;

template <class T>
T random_value(Rng& rng) {
  if constexpr (std::is_same_v<T, bool>) {
    return (rng() & 7u) == 0;  // rare, so that "or" does not always give true
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(rng());
  } else {
    // Multiples of 1/4 in [-2, 2]: products and their sums are exact in every type's accumulator.
    return static_cast<T>(static_cast<float>(static_cast<int>(rng() % 17) - 8) / 4.f);
  }
}

struct Case {
  std::int64_t m, n, k;
  bool trans_a, trans_b, accumulate;
  std::int64_t extra;  // elements between the rows' ends and the next rows
};

// Computes a row at a time in the widest type and rounds once.
template <class T, class Out>
void reference(const Gemm& g, Out* c) {
  constexpr bool logical = std::is_same_v<T, bool>;
  using Sum = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
  const auto* const a = static_cast<const T*>(g.a);
  const auto* const b = static_cast<const T*>(g.b);
  const std::int64_t b_row = g.trans_b ? 1 : g.ldb, b_col = g.trans_b ? g.ldb : 1;
  std::vector<Sum> sums(static_cast<std::size_t>(g.n));
  for (std::int64_t i = 0; i < g.m; ++i) {
    Out* const out = c + i * g.ldc;
    for (std::int64_t j = 0; j < g.n; ++j)
      sums[static_cast<std::size_t>(j)] = g.accumulate ? static_cast<Sum>(out[j]) : Sum{};
    for (std::int64_t l = 0; l < g.k; ++l) {
      const Sum x = static_cast<Sum>(a[g.trans_a ? l * g.lda + i : i * g.lda + l]);
      const T* const row = b + l * b_row;
      for (std::int64_t j = 0; j < g.n; ++j) {
        Sum& sum = sums[static_cast<std::size_t>(j)];
        const Sum y = static_cast<Sum>(row[j * b_col]);
        if constexpr (logical)
          sum |= x & y;
        else
          sum += x * y;
      }
    }
    for (std::int64_t j = 0; j < g.n; ++j) {
      const Sum sum = sums[static_cast<std::size_t>(j)];
      if constexpr (std::is_integral_v<T> || std::is_same_v<Out, double>)
        out[j] = static_cast<Out>(sum);
      else
        out[j] = static_cast<Out>(static_cast<float>(sum));
    }
  }
}

// Storage of any T, since std::vector<bool> is not an array.
template <class T>
class Data {
 public:
  explicit Data(std::int64_t count) : bytes_(static_cast<std::size_t>(count) * sizeof(T)) {}
  T* get() { return reinterpret_cast<T*>(bytes_.data()); }
  void fill(std::int64_t count, Rng& rng) {
    for (std::int64_t i = 0; i < count; ++i) get()[i] = random_value<T>(rng);
  }
  friend bool operator==(const Data&, const Data&) = default;

 private:
  std::vector<std::uint8_t> bytes_;
};

using Multiply = void (*)(const Gemm&);

template <class T, class Out = T>
void check_case(const Case& c, Multiply run, Rng& rng) {
  Gemm g;
  g.dtype = dtype_of<T>;
  g.out = dtype_of<Out>;
  g.m = c.m, g.n = c.n, g.k = c.k;
  g.trans_a = c.trans_a, g.trans_b = c.trans_b, g.accumulate = c.accumulate;
  g.lda = std::max<std::int64_t>(1, (c.trans_a ? c.m : c.k) + c.extra);
  g.ldb = std::max<std::int64_t>(1, (c.trans_b ? c.k : c.n) + c.extra);
  g.ldc = std::max<std::int64_t>(1, c.n + c.extra);
  const std::int64_t size_a = (c.trans_a ? c.k : c.m) * g.lda + 1;
  const std::int64_t size_b = (c.trans_b ? c.n : c.k) * g.ldb + 1;
  const std::int64_t size_c = c.m * g.ldc + 1;
  Data<T> a(size_a), b(size_b);
  Data<Out> got(size_c);
  a.fill(size_a, rng);
  b.fill(size_b, rng);
  got.fill(size_c, rng);
  Data<Out> want = got;
  g.a = a.get();
  g.b = b.get();
  g.c = want.get();
  reference<T, Out>(g, want.get());
  g.c = got.get();
  run(g);
  EXPECT_EQ(got, want) << short_name(g.dtype) << " -> " << short_name(g.out) << " " << c.m << "x"
                       << c.n << "x" << c.k << " trans " << c.trans_a << c.trans_b << " accumulate "
                       << c.accumulate << " extra " << c.extra;
}

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
    const Case c{static_cast<std::int64_t>(rng() % 70),
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

void run_in_parts(const Gemm& g) {
  for (int part = 6; part >= 0; --part) gemm_part(g, part, 7);
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
      const Case c{m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3};
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
      const Case c{m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, flags % 3};
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
      const Case c{m, n, 1 + 7 * m % 40, n % 2 != 0, false, m % 2 != 0, n % 3};
      check_case<float>(c, run, rng);
      check_case<double>(c, run, rng);
    }
  }
}

TEST(Gemm, NarrowRowsMatchReference) {
  Rng rng(7);
  for (int n = 1; n <= 17; ++n) {  // every number of lanes of one vector and of two, and one more
    for (int m = 1; m <= 17; ++m) {
      const Case c{m, n, 1 + 7 * m % 40, n % 2 != 0, m % 3 == 0, m % 2 != 0, n % 3};
      check_case<float>(c, gemm, rng);
      check_case<double>(c, gemm, rng);
    }
  }
  check_case<float>({200, 11, 100, false, false, true, 1}, gemm, rng);
  check_case<double>({100, 7, 256, true, false, false, 1}, gemm, rng);
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

TEST(Gemm, ProductsOfAMatrixAndAVectorMatchTheReference) {
  check_vectors<float>();
  check_vectors<double>();
  check_vectors<bfloat16>();
  check_vectors<bfloat16, float>();
  check_vectors<float16>();
  check_vectors<std::int32_t>();
}

// A product of a matrix and a vector that is cut along its results keeps all bits.
TEST(Gemm, PartsOfAVectorsProductHaveTheBitsOfTheWhole) {
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
  reference<T, T>(g, exact.data());
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

TEST(Gemm, PartsOfLongSumsHaveTheBitsOfTheWhole) {
  if (!is_vector_product({.m = 1, .n = 64, .k = 64}))
    GTEST_SKIP() << "this CPU has no kernels for a matrix and a vector";
  check_long_sums<float, float>(1, kSumBlock + 1, 1);
  check_long_sums<float, float>(3, 3 * kSumBlock - 7, 2);
  check_long_sums<double, double>(37, 2 * kSumBlock, 1);
  check_long_sums<bfloat16, float>(2, 5 * kSumBlock + 33, 3);
  check_long_sums<float16, float>(1, 2 * kSumBlock + 1, 1);
  EXPECT_FALSE(has_long_sums({.m = 1, .n = 1, .k = kSumBlock}));
}

TEST(Gemm, VectorsPassInfinitiesAndNans) {
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
