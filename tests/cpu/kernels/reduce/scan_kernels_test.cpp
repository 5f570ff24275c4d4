#include "core/cpu/kernels/reduce/scan.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/kernels/reduce/arg_reduce.h"
#include "tests/cpu/kernels/kernel_testing.h"

namespace shmap::cpu {
namespace {

using namespace testing;

struct Extents {
  std::int64_t outer, len, inner;
};
const Extents kExtents[] = {{1, 1, 1},  {3, 1, 5},    {2, 17, 1}, {1, 1000, 1}, {1, 9000, 1},
                            {2, 33, 3}, {1, 20, 700}, {0, 4, 3},  {2, 4, 0},    {8, 1, 1},
                            {9, 4, 1},  {8, 5, 1},    {19, 6, 1}, {16, 103, 1}};

template <class T, class Index>
void check_arg(ArgReduction op) {
  SCOPED_TRACE(to_string(dtype_of<T>) + (op == ArgReduction::argmax ? " argmax" : " argmin"));
  const ArgReduceFn kernel = arg_reduce_kernel(op, dtype_of<T>, dtype_of<Index>);
  ASSERT_NE(kernel, nullptr);
  for (const bool nans : {false, true}) {
    for (const Extents& e : kExtents) {
      auto in = elements<T>(e.outer * e.len * e.inner, 3);
      if constexpr (kIsReal<T>) {
        for (std::size_t i = 0; i < in.size(); ++i)
          if (in[i] != in[i] && !(nans && i % 3 == 0)) in[i] = T(0.25f);
      }
      std::vector<Index> out(static_cast<std::size_t>(e.outer * e.inner) + 1, 77);
      kernel(in.data(), out.data(), e.outer, e.len, e.inner);
      EXPECT_EQ(out.back(), 77);
      for (std::int64_t o = 0; o < e.outer; ++o) {
        for (std::int64_t i = 0; i < e.inner; ++i) {
          const auto at = [&](std::int64_t r) {
            return to_real(in[static_cast<std::size_t>((o * e.len + r) * e.inner + i)]);
          };
          std::int64_t want = 0;
          for (std::int64_t r = 1; r < e.len && !std::isnan(at(want)); ++r) {
            const bool beyond = op == ArgReduction::argmax ? at(r) > at(want) : at(r) < at(want);
            if (beyond || std::isnan(at(r))) want = r;
          }
          ASSERT_EQ(out[static_cast<std::size_t>(o * e.inner + i)], want)
              << e.outer << "," << e.len << "," << e.inner << " at " << o << "," << i;
        }
      }
    }
  }
}

TEST(ArgReduceKernels, FindTheFirstOfEqualElementsAndNan) {
  for (const DType dtype : kNumericDTypes) {
    with_type(dtype, [&]<class T>() {
      check_arg<T, std::int32_t>(ArgReduction::argmax);
      check_arg<T, std::int64_t>(ArgReduction::argmin);
    });
    EXPECT_EQ(arg_reduce_kernel(ArgReduction::argmax, dtype, u32), nullptr);
  }
  EXPECT_EQ(arg_reduce_kernel(ArgReduction::argmax, DType::prng_key, i32), nullptr);
}

TEST(ArgReduceKernels, LongRunsOfEqualElements) {
  std::vector<float> x(20000, -1.f);
  std::int32_t at;
  const auto argmax = [&] {
    arg_reduce_kernel(ArgReduction::argmax, f32, i32)(x.data(), &at, 1, 20000, 1);
    return at;
  };
  EXPECT_EQ(argmax(), 0);
  x[19999] = 2;
  EXPECT_EQ(argmax(), 19999);
  x[4096] = x[12000] = 2;
  EXPECT_EQ(argmax(), 4096);
  x[15000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(argmax(), 15000);
}

long double log_add_exp(long double a, long double b) {
  if (a == b) return a + std::log(2.0L);
  if (std::isnan(a) || std::isnan(b)) return std::nanl("");
  const long double m = std::max(a, b);
  return std::isinf(m) ? m : m + std::log1p(std::exp(-std::fabs(a - b)));
}

template <class T>
void check_scan(Cumulative op) {
  SCOPED_TRACE(to_string(dtype_of<T>) + " op " + std::to_string(static_cast<int>(op)));
  using E = Element<T>;
  const ScanFn kernel = scan_kernel(op, dtype_of<T>);
  ASSERT_NE(kernel, nullptr);
  const bool ordered = op == Cumulative::cummax || op == Cumulative::cummin;
  for (const Extents& e : kExtents) {
    for (const bool reverse : {false, true}) {
      auto in = elements<T>(e.outer * e.len * e.inner, 5);
      if constexpr (kIsReal<T>) {
        for (std::size_t i = 0; i < in.size(); ++i) {
          const bool fine = std::fabs(to_real(in[i])) < 5;
          if (op == Cumulative::cumsum)
            in[i] = T(fine ? std::fabs(static_cast<float>(in[i])) : 1.f);
          if (op == Cumulative::cumprod)
            in[i] = T(std::exp2(fine ? static_cast<float>(in[i]) / 64 : 0.f));
          if (op == Cumulative::cumlogsumexp && std::isnan(to_real(in[i]))) in[i] = T(1.f);
          if (ordered && std::isnan(to_real(in[i])) && i % 50 != 7) in[i] = T(1.f);
        }
      }
      std::vector<E> out(in.size() + 1, E(9));
      kernel(in.data(), out.data(), e.outer, e.len, e.inner, reverse);
      EXPECT_EQ(to_real(out.back()), 9);
      out.pop_back();
      for (std::int64_t o = 0; o < e.outer; ++o) {
        for (std::int64_t i = 0; i < e.inner; ++i) {
          long double real = 0;
          std::uint64_t bits = 0;
          for (std::int64_t r = 0; r < e.len; ++r) {
            const std::int64_t row = reverse ? e.len - 1 - r : r;
            const auto at = static_cast<std::size_t>((o * e.len + row) * e.inner + i);
            const long double x = to_real(in[at]);
            const std::uint64_t b = kIsReal<T> ? 0 : static_cast<std::uint64_t>(in[at]);
            if (r == 0) {
              real = x;
              bits = b;
            } else if (op == Cumulative::cumsum) {
              real += x;
              bits += b;
            } else if (op == Cumulative::cumprod) {
              real *= x;
              bits *= b;
            } else if (op == Cumulative::cumlogsumexp) {
              real = log_add_exp(real, x);
            } else if (std::isnan(x) || std::isnan(real)) {
              real = std::nanl("");
            } else {
              real = op == Cumulative::cummax ? std::max(real, x) : std::min(real, x);
            }
            const bool wraps = op == Cumulative::cumsum || op == Cumulative::cumprod;
            if (!kIsReal<T> && wraps)
              ASSERT_EQ(out[at], static_cast<E>(bits)) << r;
            else if (!kIsReal<T>)
              ASSERT_EQ(to_real(out[at]), real) << r;
            else if (ordered && !std::isnan(real))
              ASSERT_EQ(to_real(out[at]), real) << r;
            else if (std::is_same_v<T, double> && op == Cumulative::cumlogsumexp &&
                     std::isfinite(real))
              ASSERT_LE(std::fabs(to_real(out[at]) - real), 1e-13L * (1 + std::fabs(real))) << r;
            else  // f64 accumulates in itself: half an ulp a step at most
              ASSERT_LE(ulps(out[at], real),
                        0.51 + (std::is_same_v<T, double> ? 0.5 * double(r) : 0));
          }
        }
      }
      auto place = in;
      kernel(place.data(), place.data(), e.outer, e.len, e.inner, reverse);
      EXPECT_TRUE(same_bits(place, out));
      ASSERT_EQ(scans_ranges(op, dtype_of<T>), !kIsReal<T>);
      if (kIsReal<T> || e.outer != 1 || e.inner != 1) continue;
      for (const std::int64_t parts : {1, 2, 7}) {
        std::vector<E> pieces(out.size(), E(9));
        for (std::int64_t p = parts; p-- > 0;) {
          scan_range(op, dtype_of<T>, in.data(), pieces.data(), e.len, reverse, e.len * p / parts,
                     e.len * (p + 1) / parts);
        }
        EXPECT_TRUE(same_bits(pieces, out)) << e.len << " in " << parts << " parts";
      }
    }
  }
}

TEST(ScanKernels, EveryOpOfEveryDType) {
  for (const DType dtype : kNumericDTypes) {
    for (const Cumulative op : {Cumulative::cumsum, Cumulative::cumprod, Cumulative::cummax,
                                Cumulative::cummin, Cumulative::cumlogsumexp}) {
      const bool ordered = op == Cumulative::cummax || op == Cumulative::cummin;
      const bool exists = is_floating(dtype) || ordered ||
                          (op != Cumulative::cumlogsumexp && dtype != DType::bool_);
      ASSERT_EQ(scan_kernel(op, dtype) != nullptr, exists)
          << to_string(dtype) << " " << to_string(op);
      if (exists) with_type(dtype, [&]<class T>() { check_scan<T>(op); });
    }
  }
  EXPECT_EQ(scan_kernel(Cumulative::cumsum, DType::prng_key), nullptr);
}

// A row has the same bits whichever rows are scanned with it.
TEST(ScanKernels, RowsSideBySideHaveTheBitsOfOneRow) {
  for (const Cumulative op : {Cumulative::cumsum, Cumulative::cumprod}) {
    for (const std::int64_t len : {1, 2, 4, 5, 8, 30, 301}) {
      for (const bool reverse : {false, true}) {
        constexpr std::int64_t kRows = 19;
        const auto in = elements<float>(kRows * len, 11);
        std::vector<float> all(in.size()), alone(in.size());
        scan_kernel(op, f32)(in.data(), all.data(), kRows, len, 1, reverse);
        for (std::int64_t row = 0; row < kRows; ++row) {
          scan_kernel(op, f32)(in.data() + row * len, alone.data() + row * len, 1, len, 1, reverse);
        }
        EXPECT_TRUE(same_bits_but_of_nans(all, alone))
            << to_string(op) << " " << len << " " << reverse;
      }
    }
  }
}

}  // namespace
}  // namespace shmap::cpu
