#include "core/base/format_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "shmap/error.h"

namespace shmap::detail {
namespace {

double read_back(const Decimal& d) { return std::strtod(scientific(d, 0, 1).c_str(), nullptr); }

// The value with one unit more or less in the last digit, as a double.
double neighbour(Decimal d, int step) {
  const double unit =
      std::strtod(("1e" + std::to_string(d.exponent - d.count + 1)).c_str(), nullptr);
  return read_back(d) + step * unit;
}

TEST(FormatFloat, EveryFloat16ReadsBackFromItsShortestDigits) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00u) == 0x7c00u) continue;
    float16 v;
    v.bits = static_cast<std::uint16_t>(bits);
    const Decimal d = shortest_decimal(v);
    ASSERT_EQ(float16(static_cast<float>(read_back(d))).bits, bits);
    // Neither neighbour of the same length is nearer, and no shorter text reads back.
    const double exact = static_cast<double>(static_cast<float>(v));
    const double error = std::fabs(read_back(d) - exact);
    if (bits & 0x7fffu) {
      ASSERT_LE(error, std::fabs(neighbour(d, 1) - exact) * (1 + 1e-9)) << bits;
      ASSERT_LE(error, std::fabs(neighbour(d, -1) - exact) * (1 + 1e-9)) << bits;
    }
    if (d.count > 1) {
      Decimal shorter = d;
      --shorter.count;
      ASSERT_NE(float16(static_cast<float>(read_back(shorter))).bits, bits);
      ASSERT_NE(float16(static_cast<float>(neighbour(shorter, d.negative ? -1 : 1))).bits, bits);
    }
  }
}

TEST(FormatFloat, RoundsToEven) {
  EXPECT_EQ(scientific(rounded_decimal(2.5, 1), 0, 2), "2.e+00");
  EXPECT_EQ(scientific(rounded_decimal(3.5, 1), 0, 2), "4.e+00");
  EXPECT_EQ(scientific(rounded_decimal(-9.96, 2), 0, 2), "-1.0e+01");
}

TEST(FormatFloat, Positional) {
  EXPECT_EQ(positional(shortest_decimal(0.0)), "0.");
  EXPECT_EQ(positional(shortest_decimal(-0.0)), "-0.");
  EXPECT_EQ(positional(shortest_decimal(1200.0)), "1200.");
  EXPECT_EQ(positional(shortest_decimal(0.00125)), "0.00125");
  EXPECT_EQ(positional(shortest_decimal(-12.5f)), "-12.5");
}

TEST(FormatFloat, Scalars) {
  const auto str = [](auto v) { return format_scalar(&v, dtype_of<decltype(v)>); };
  EXPECT_EQ(str(0.1f), "0.1");
  EXPECT_EQ(str(0.1), "0.1");
  EXPECT_EQ(str(1e16), "1e+16");
  EXPECT_EQ(str(1e6f), "1e+06");
  EXPECT_EQ(str(1e6), "1000000.0");
  EXPECT_EQ(str(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(str(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(str(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(str(true), "True");
  EXPECT_EQ(str(bfloat16(0.1f)), "0.100098");
  EXPECT_EQ(str(float16(65504.f)), "6.55e+04");
  const std::uint32_t key[2] = {};
  EXPECT_THROW(format_scalar(key, prng_key), TypeError);
}

}  // namespace
}  // namespace shmap::detail
