#include "core/array/print_array.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "shmap/error.h"

namespace shmap {
namespace {

struct Golden {
  DType dtype;
  Shape shape;
  const char* prefix;
  const char* bits;  // hexadecimal, repeated until the shape is filled
  const char* text;
};

const Golden kGoldens[] = {
#include "tests/golden/print.inc"
};

std::vector<std::byte> unpack(const Golden& g) {
  const std::string hex = g.bits;
  std::vector<std::byte> pattern;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    pattern.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  std::vector<std::byte> data(static_cast<std::size_t>(checked_bytes(g.shape, itemsize(g.dtype))));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = pattern[i % pattern.size()];
  return data;
}

TEST(PrintArray, MatchesNumPy) {
  int failures = 0;
  for (const Golden& g : kGoldens) {
    const std::vector<std::byte> data = unpack(g);
    const std::string text = detail::format_array(data.data(), g.dtype, g.shape, g.prefix);
    if (text == g.text) continue;
    ADD_FAILURE() << g.dtype << g.shape << " prefix '" << g.prefix << "' bits " << g.bits
                  << "\nwanted\n"
                  << g.text << "\ngot\n"
                  << text;
    if (++failures == 10) break;
  }
  EXPECT_GT(std::size(kGoldens), 500u);
}

TEST(PrintArray, ReadsOnlyWhatItShows) {
  // Reads only the first and last three of a million elements.
  std::vector<float> data(1'000'000, 1e30f);
  for (int i = 0; i < 3; ++i) data[i] = data[data.size() - 1 - i] = 2.5f;
  EXPECT_EQ(detail::format_array(data.data(), f32, {1'000'000}), "[2.5 2.5 2.5 ... 2.5 2.5 2.5]");
}

TEST(PrintArray, KeysShowTheirWords) {
  const std::uint32_t words[] = {3716834203u, 3481239269u, 1946498123u, 2217676430u};
  EXPECT_EQ(detail::format_array(words, prng_key, {}),
            "Array((), dtype=key<fry>) overlaying:\n[3716834203 3481239269]");
  EXPECT_EQ(detail::format_array(words, prng_key, {2}),
            "Array((2,), dtype=key<fry>) overlaying:\n"
            "[[3716834203 3481239269]\n [1946498123 2217676430]]");
}

TEST(PrintArray, BadShapeIsAnError) {
  EXPECT_THROW(detail::format_array(nullptr, f32, {-1}), ValueError);
  EXPECT_THROW(detail::format_array(nullptr, f32, {INT64_MAX, 3}), ValueError);
}

}  // namespace
}  // namespace shmap
