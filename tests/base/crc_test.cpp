// CRC-32C and CRC-32: the published check values, and any length, alignment and split compared with
// a loop over bits.
#include "core/base/crc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

namespace shmap {
namespace {

std::uint32_t by_bits(const unsigned char* p, std::size_t n, std::uint32_t polynomial) {
  std::uint32_t c = ~std::uint32_t{0};
  for (std::size_t i = 0; i < n; ++i) {
    c ^= p[i];
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ polynomial : c >> 1;
  }
  return ~c;
}

TEST(Crc, CheckValues) {
  constexpr std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(digits.data(), digits.size()), 0xe3069283u);
  EXPECT_EQ(crc32(digits.data(), digits.size()), 0xcbf43926u);
  EXPECT_EQ(crc32c(nullptr, 0), 0u);
  const std::vector<unsigned char> zeros(32), ones(32, 0xff);
  EXPECT_EQ(crc32c(zeros.data(), 32), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(ones.data(), 32), 0x62a8ab43u);
}

TEST(Crc, AnyLengthAndSplit) {
  std::vector<unsigned char> bytes(20000);
  std::uint32_t state = 1;
  for (unsigned char& b : bytes)
    b = static_cast<unsigned char>((state = state * 1664525 + 7) >> 24);
  for (std::size_t n = 0; n < 12000; n += 1 + n / 9) {
    const unsigned char* const p = bytes.data() + n % 8;
    const std::uint32_t want = by_bits(p, n, 0x82f63b78), zip = by_bits(p, n, 0xedb88320);
    EXPECT_EQ(crc32c(p, n), want) << n;
    EXPECT_EQ(crc32(p, n), zip) << n;
    const std::size_t half = n * 2 / 3;
    EXPECT_EQ(crc32c(p + half, n - half, crc32c(p, half)), want) << n;
    EXPECT_EQ(crc32(p + half, n - half, crc32(p, half)), zip) << n;
  }
}

// Copies to every alignment of both sides. Nothing is written before or after the copy.
TEST(Crc, Copies) {
  std::vector<unsigned char> bytes(20000);
  std::uint32_t state = 1;
  for (unsigned char& b : bytes)
    b = static_cast<unsigned char>((state = state * 1664525 + 7) >> 24);
  alignas(64) static unsigned char out[20000];
  for (std::size_t n = 0, k = 0; n < 12000; n += 1 + n / 9, ++k) {
    for (const std::size_t to : {std::size_t{64}, 64 + 16 * (k % 4), 64 + k % 64}) {
      std::fill(std::begin(out), std::end(out), 0xee);
      const unsigned char* const p = bytes.data() + k % 5;
      const std::uint32_t before = k % 2 == 0 ? 0 : 0x12345678;
      EXPECT_EQ(copy_crc32c(out + to, p, n, before), crc32c(p, n, before)) << n << " to " << to;
      EXPECT_TRUE(std::equal(p, p + n, out + to)) << n << " to " << to;
      EXPECT_EQ(out[to - 1], 0xee) << n << " to " << to;
      EXPECT_EQ(out[to + n], 0xee) << n << " to " << to;
    }
  }
}

}  // namespace
}  // namespace shmap
