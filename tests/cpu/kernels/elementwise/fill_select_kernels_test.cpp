#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/elementwise/select.h"
#include "core/cpu/kernels/vector/non_temporal.h"
#include "core/cpu/kernels/vector/store_around.h"
#include "tests/cpu/kernels/kernel_testing.h"

namespace shmap::cpu {
namespace {

using namespace testing;

TEST(FillKernels, FillsWithElementsOfAnySize) {
  for (const int size : {1, 2, 3, 4, 8, 12, 16, 40, 5000}) {
    std::vector<std::uint8_t> value(static_cast<std::size_t>(size));
    for (std::size_t k = 0; k < value.size(); ++k) value[k] = static_cast<std::uint8_t>(7 * k + 1);
    for (const std::int64_t n : kSizes) {
      std::vector<std::uint8_t> out(static_cast<std::size_t>(n * size + 2), 0xee);
      fill(out.data() + 1, value.data(), size, n);
      EXPECT_EQ(out.front(), 0xee);
      EXPECT_EQ(out.back(), 0xee);
      for (std::size_t i = 0; i + 2 < out.size(); ++i)
        ASSERT_EQ(out[i + 1], value[i % value.size()]) << i << " of " << n << " x " << size;
    }
  }
  const float zero = 0;
  std::vector<float> zeros(100, 3.f);
  fill(zeros.data(), &zero, 4, 100);
  EXPECT_EQ(zeros, std::vector<float>(100, 0.f));
}

TEST(FillKernels, LargeFillsAndCopiesPassTheCaches) {
  const std::int64_t n = store_around_bytes() / 4 + 13;
  std::vector<std::uint32_t> out(static_cast<std::size_t>(n + 2), 5), copy = out;
  const std::uint32_t value = 0x01020304;
  fill(out.data() + 1, &value, 4, n);
  EXPECT_EQ(out.front() + out.back(), 10u);
  EXPECT_EQ(std::count(out.begin(), out.end(), value), n);
  iota(u32, out.data() + 1, n, 3);
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i + 1)], i + 3);
  EXPECT_EQ(out.front() + out.back(), 10u);
  for (const std::int64_t bytes : {0, 1, 63, 64, 65, 1000, 4096}) {
    std::fill(copy.begin(), copy.end(), 5u);
    auto* to = reinterpret_cast<std::uint8_t*>(copy.data()) + 3;
    const auto* from = reinterpret_cast<const std::uint8_t*>(out.data()) + 6;
    copy_non_temporal(to, from, bytes);
    EXPECT_EQ(std::memcmp(to, from, static_cast<std::size_t>(bytes)), 0);
    EXPECT_EQ(to[bytes],
              reinterpret_cast<const std::uint8_t*>(copy.data() + 2000)[(3 + bytes) % 4]);
  }
}

TEST(FillKernels, IotaWrapsOrRoundsOnce) {
  for (const DType dtype : kNumericDTypes) {
    if (dtype == DType::bool_) continue;
    SCOPED_TRACE(to_string(dtype));
    with_type(dtype, [&]<class T>() {
      for (const std::int64_t n : kSizes) {
        std::vector<Element<T>> out(static_cast<std::size_t>(n) + 1, Element<T>(7));
        iota(dtype, out.data(), n, 5, -20, 3);
        EXPECT_EQ(to_real(out.back()), 7);
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t want = -20 + (5 + i) * 3;
          Element<T> rounded;
          if constexpr (kIsHalf<T>)
            rounded = T(static_cast<float>(want));
          else
            rounded = static_cast<Element<T>>(want);
          ASSERT_EQ(to_real(out[static_cast<std::size_t>(i)]), to_real(rounded)) << i;
        }
        linear(dtype, out.data(), n, 2, 1.5, 0.25);
        for (std::int64_t i = 0; i < n; ++i) {
          const double want = 1.5 + (2 + static_cast<double>(i)) * 0.25;  // at most 300
          const long double got = to_real(out[static_cast<std::size_t>(i)]);
          if constexpr (kIsReal<T>)
            ASSERT_LE(ulps(out[static_cast<std::size_t>(i)], want), 0.5) << i;
          else
            ASSERT_EQ(got, std::min<long double>(std::floor(want),
                                                 to_real(std::numeric_limits<T>::max())))
                << i;
        }
      }
    });
  }
}

TEST(SelectKernels, ChoosesAmongVectorsAndScalars) {
  std::mt19937_64 rng(3);
  for (const int size : {1, 2, 4, 8}) {
    const auto s = static_cast<std::size_t>(size);
    for (const std::int64_t n : kSizes) {
      const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(n, 1)) * s;
      std::vector<std::uint8_t> pred(bytes), t(bytes), f(bytes);
      for (auto& p : pred) p = static_cast<std::uint8_t>(rng() % 3);  // any byte but 0 is true
      for (auto& x : t) x = static_cast<std::uint8_t>(rng());
      for (auto& x : f) x = static_cast<std::uint8_t>(rng());
      for (int form = 0; form < 8; ++form) {
        const bool ps = form & 1, ts = form & 2, fs = form & 4;
        std::vector<std::uint8_t> out(bytes + 1, 0xaa), want(static_cast<std::size_t>(n) * s);
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
          const auto& side = pred[ps ? 0 : i] ? t : f;
          const bool scalar = pred[ps ? 0 : i] ? ts : fs;
          std::copy_n(side.begin() + static_cast<std::ptrdiff_t>(scalar ? 0 : i * s), s,
                      want.begin() + static_cast<std::ptrdiff_t>(i * s));
        }
        select(pred.data(), ps, t.data(), ts, f.data(), fs, out.data(), size, n);
        EXPECT_TRUE(std::equal(want.begin(), want.end(), out.begin())) << form << " " << n;
        EXPECT_EQ(out[want.size()], 0xaa);
        if (!ts || n == 1) {
          auto place = t;
          select(pred.data(), ps, place.data(), ts, f.data(), fs, place.data(), size, n);
          EXPECT_TRUE(std::equal(want.begin(), want.end(), place.begin())) << form << " " << n;
        }
        if (!fs || n == 1) {
          auto place = f;
          select(pred.data(), ps, t.data(), ts, place.data(), fs, place.data(), size, n);
          EXPECT_TRUE(std::equal(want.begin(), want.end(), place.begin())) << form << " " << n;
        }
      }
    }
  }
}

TEST(SelectKernels, ClampIsMinOfMax) {
  for (const DType dtype : kNumericDTypes) {
    SCOPED_TRACE(to_string(dtype));
    with_type(dtype, [&]<class T>() {
      using E = Element<T>;
      for (const std::int64_t n : kSizes) {
        const std::int64_t some = std::max<std::int64_t>(n, 1);
        const auto low = elements<T>(some, 1), x = elements<T>(some, 2),
                   high = elements<T>(some, 3);
        for (int form = 0; form < 4; ++form) {
          const bool ls = form & 1, hs = form & 2;
          const auto check = [&](const std::vector<E>& out) {
            for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
              const long double l = to_real(low[ls ? 0 : i]), v = to_real(x[i]),
                                h = to_real(high[hs ? 0 : i]), got = to_real(out[i]);
              if (std::isnan(l) || std::isnan(v) || std::isnan(h))
                ASSERT_TRUE(std::isnan(got)) << i;
              else
                ASSERT_EQ(got, std::min(std::max(v, l), h)) << i << " of " << n;
            }
          };
          std::vector<E> out(x.size()), in_x = x, in_high = high;
          clamp(dtype, low.data(), ls, x.data(), high.data(), hs, out.data(), n);
          check(out);
          clamp(dtype, low.data(), ls, in_x.data(), high.data(), hs, in_x.data(), n);
          check(in_x);
          if (hs) continue;
          clamp(dtype, low.data(), ls, x.data(), in_high.data(), hs, in_high.data(), n);
          check(in_high);
        }
      }
    });
  }
}

}  // namespace
}  // namespace shmap::cpu
