#include "core/io/inflate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/error.h"
#include "tests/support/error_text.h"

namespace shmap::io {
namespace {

std::string of_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(16 * digit(hex[i]) + digit(hex[i + 1]));
  return out;
}

// Inflates everything (at most `most` bytes), `piece` bytes at a time.
std::string inflate(const std::string& packed, std::int64_t piece = 1 << 20,
                    std::int64_t most = 1 << 20) {
  std::size_t at = 0;
  Inflater inflater(
      [&](std::byte* dst, std::int64_t count) {
        ASSERT_LE(count, 64 << 10) << "no more is held at a time";
        ASSERT_LE(at + static_cast<std::size_t>(count), packed.size());
        std::memcpy(dst, packed.data() + at, static_cast<std::size_t>(count));
        at += static_cast<std::size_t>(count);
      },
      static_cast<std::int64_t>(packed.size()), "x");
  std::string out;
  std::vector<std::byte> some(static_cast<std::size_t>(piece));
  while (static_cast<std::int64_t>(out.size()) < most) {
    const std::int64_t n = inflater.read(some.data(), piece);
    out.append(reinterpret_cast<const char*>(some.data()), static_cast<std::size_t>(n));
    if (n < piece) break;
  }
  return out;
}

std::string repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// The text as zlib deflates it, with each kind of block.
const std::string kText = repeat("the quick brown fox jumps over the lazy dog; ", 3) +
                          "a lazier dog: 0123456789 9876543210";
const std::string kFixed = of_hex(
    "2bc94855282ccd4cce56482aca2fcf5348cbaf50c82acd2d2856c82f4b2d5228014ae72456552aa4e4a75b8379b4"
    "519c0862670285813c2b0503432363135333730b4b054b0b733353136323430300");
const std::string kDynamic = of_hex(
    "bd8ad711833014045b792590835d8d724020504250bd6597e019fbeff676836470444516c0ce9e1b709b41c775f7"
    "601373108a36e8be805af1fcd06f62f4deaadc851e50d54ddbf5c338cd304fe3d0776d53570813cab8904a2f66dd"
    "ec7e381f623af375ffcbdc573e530cde1dbbdd56b3682505679460f48d7901");
const std::string kStored = of_hex("010300fcff616263");

TEST(Inflate, EveryKindOfBlock) {
  EXPECT_EQ(inflate(kStored), "abc");
  EXPECT_EQ(inflate(kFixed), kText);
  EXPECT_EQ(inflate(kDynamic), kText + repeat("abcdefghijklmnopqrstuvwxyz", 5) +
                                   repeat("zyxwvutsrqponmlkjihgfedcba", 3));
  // Codes of literals alone, in a code of four symbols.
  EXPECT_EQ(inflate(of_hex("05c1010100000082a0add8ff0f01005555b56d03a0aaaab66d005455d5b60d80aa"
                           "aadab601505555db3600aaaa6adb064055556ddb00a8aaaa6d1b005555b56d03a0"
                           "aaaab66d005455d5b60d80aaaadab601505555db3600aaaa6adb064055556ddb00"
                           "a8aaaa6d1b005555b56d03a0aaaab66d005455d5b60d80aaaadab61d")),
            repeat("aaaaaaaaaabbbbbbbbbbccccc", 20));
  EXPECT_EQ(inflate(of_hex("0300")), "");
  // The longest match again and again: 100,000 bytes, more than is kept of them.
  const std::string zeros =
      of_hex("edc13101000000c2a0f54f6d0d0fa0") + std::string(95, '\0') + of_hex("00805703");
  EXPECT_EQ(inflate(zeros), std::string(100000, '\0'));
}

TEST(Inflate, PieceByPiece) {
  for (const std::int64_t piece : {1, 3, 64, 1000})
    EXPECT_EQ(inflate(kFixed, piece), kText) << piece;
  // Stored blocks of more than the window, one after another.
  std::string whole, packed;
  for (int block = 0; block < 5; ++block) {
    std::string bytes;
    const auto step = static_cast<unsigned>(block + 1);
    for (unsigned i = 0; i < 39999 + step; ++i) bytes += static_cast<char>(i * i * step >> 7);
    const auto n = static_cast<unsigned>(bytes.size());
    packed += block == 4 ? '\1' : '\0';
    for (const unsigned word : {n, ~n}) {
      packed += static_cast<char>(word);
      packed += static_cast<char>(word >> 8);
    }
    packed += bytes;
    whole += bytes;
  }
  for (const std::int64_t piece : {777, 65536, 1 << 20})
    EXPECT_EQ(inflate(packed, piece), whole) << piece;
}

TEST(Inflate, RefusesWhatIsNone) {
  const auto refuses = [](const std::string& packed, const char* why) {
    test::expect_error<ValueError>([&] { inflate(packed); },
                                   {"x: it is damaged: its deflated bytes ", why});
  };
  for (const std::string* packed : {&kStored, &kFixed, &kDynamic})
    for (std::size_t size = 0; size < packed->size(); ++size)
      refuses(packed->substr(0, size), "");  // wherever they end
  refuses("", "end early");
  refuses(kFixed.substr(0, 20), "end early");
  refuses(kFixed + "x", "go on after their end");
  refuses(kFixed + std::string(100, 'x'), "go on after their end");
  refuses(of_hex("07"), "have a block of no kind");
  refuses(of_hex("010300fcfe616263"), "have a stored block of two lengths");
  refuses(of_hex("fd00000000"), "have a block of too many codes");
  refuses(of_hex("050000000000"), "have a block whose code lengths have no code");
  // A fixed block whose first symbol is a match that refers to bytes before the beginning.
  refuses(of_hex("030200"), "have a match before their beginning");
}

}  // namespace
}  // namespace shmap::io
