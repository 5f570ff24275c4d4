#include "core/base/hash_bytes.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

namespace shmap {
namespace {

TEST(HashBytes, EveryByteAndTheLengthCount) {
  std::vector<unsigned char> bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  std::set<std::uint64_t> seen;
  for (std::size_t n = 0; n <= bytes.size(); ++n) {
    EXPECT_TRUE(seen.insert(hash_bytes(bytes.data(), n)).second) << n;
    for (std::size_t i = 0; i < n; ++i) {
      bytes[i] ^= 0x80;
      EXPECT_TRUE(seen.insert(hash_bytes(bytes.data(), n)).second) << i << " of " << n;
      bytes[i] ^= 0x80;
    }
  }
  seen.clear();
  const std::vector<unsigned char> zeros(100, 0);
  for (std::size_t n = 0; n <= zeros.size(); ++n)
    EXPECT_TRUE(seen.insert(hash_bytes(zeros.data(), n)).second) << n;
}

// Wherever the data lies, and where two words change places.
TEST(HashBytes, TheOrderCountsAndTheAddressDoesNot) {
  std::vector<std::uint64_t> words(16);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * i;
  const std::uint64_t was = hash_bytes(words.data(), 128);
  std::vector<unsigned char> moved(129);
  std::memcpy(moved.data() + 1, words.data(), 128);
  EXPECT_EQ(hash_bytes(moved.data() + 1, 128), was);
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (std::size_t k = i + 1; k < words.size(); ++k) {
      std::swap(words[i], words[k]);
      EXPECT_NE(hash_bytes(words.data(), 128), was) << i << " " << k;
      std::swap(words[i], words[k]);
    }
  }
}

// Changes of two words in their highest bits, as of the signs of floats, do not cancel.
TEST(HashBytes, TwoChangesOfSigns) {
  std::vector<float> x(64, 1.f);
  std::set<std::uint64_t> seen = {hash_bytes(x.data(), 256)};
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t k = i; k < x.size(); ++k) {
      x[i] = -1.f;
      x[k] = -1.f;
      EXPECT_TRUE(seen.insert(hash_bytes(x.data(), 256)).second) << i << " " << k;
      x[i] = x[k] = 1.f;
    }
  }
}

// The value of the reference implementation.
TEST(HashBytes, IsXxh64) { EXPECT_EQ(hash_bytes(nullptr, 0), 0xEF46DB3751D8E999u); }

}  // namespace
}  // namespace shmap
