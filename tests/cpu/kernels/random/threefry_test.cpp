// Random bits on the CPU, compared with the hash of one count at a time.
#include "core/cpu/kernels/random/threefry.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/ops/random.h"

namespace shmap::cpu {
namespace {

constexpr std::uint32_t kKey[] = {0x13198a2e, 0x03707344};

std::uint64_t bits_at(DType to, std::uint64_t count, const std::uint32_t* key = kKey) {
  const auto high = static_cast<std::uint32_t>(count >> 32);
  const auto low = static_cast<std::uint32_t>(count);
  std::uint32_t a = 0, b = 0;
  threefry_pairs(&key[0], &key[1], &high, &low, 15, &a, &b, 1);
  switch (to) {
    case DType::u8:
      return (a ^ b) & 0xff;
    case DType::u16:
      return (a ^ b) & 0xffff;
    case DType::u32:
      return a ^ b;
    case DType::u64:
      return std::uint64_t{a} << 32 | b;
    default:
      return std::uint64_t{b} << 32 | a;
  }
}

TEST(ThreefryKernel, HashesEachCount) {
  for (const DType to : {u8, u16, u32, u64, prng_key}) {
    const auto size = static_cast<std::size_t>(itemsize(to));
    for (std::uint64_t first : {std::uint64_t{0}, std::uint64_t{12345}, std::uint64_t{0xffffffe5},
                                std::uint64_t{0x7fffffff0}, ~std::uint64_t{15}}) {
      for (std::int64_t n : {0, 1, 15, 16, 17, 63, 64, 65, 200, 1000}) {
        std::vector<std::byte> out(static_cast<std::size_t>(n + 1) * size, std::byte{0x5a});
        threefry_bits(to, kKey, first, out.data(), n);
        for (std::int64_t i = 0; i < n; ++i) {
          std::uint64_t got = 0;
          std::memcpy(&got, out.data() + static_cast<std::size_t>(i) * size, size);
          ASSERT_EQ(got, bits_at(to, first + static_cast<std::uint64_t>(i)))
              << "item size " << size << ", from " << first << ", element " << i << " of " << n;
        }
        EXPECT_EQ(out.back(), std::byte{0x5a});  // nothing is written beyond the end
      }
    }
  }
}

TEST(ThreefryKernel, WritesPastTheCaches) {
  const std::int64_t n = 100003;
  std::vector<std::uint32_t> plain(n), around(n + 16);
  auto* aligned = reinterpret_cast<std::uint32_t*>(
      (reinterpret_cast<std::uintptr_t>(around.data()) + 63) / 64 * 64);
  threefry_bits(DType::u32, kKey, 7, plain.data(), n);
  threefry_bits(DType::u32, kKey, 7, aligned, n, true);
  EXPECT_EQ(std::memcmp(plain.data(), aligned, n * sizeof(std::uint32_t)), 0);
}

TEST(ThreefryKernel, TakesManyKeys) {
  const std::int64_t n = 37;
  std::vector<std::uint32_t> k0, k1, x0, x1, a(n), b(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    k0.push_back(i * 77), k1.push_back(~i), x0.push_back(i << 9), x1.push_back(5 * i);
  }
  for (unsigned one = 0; one < 16; ++one) {
    threefry_pairs(k0.data(), k1.data(), x0.data(), x1.data(), one, a.data(), b.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at[4] = {one & 1 ? 0 : i, one & 2 ? 0 : i, one & 4 ? 0 : i,
                                 one & 8 ? 0 : i};
      std::uint32_t c = 0, d = 0;
      threefry_pairs(&k0[at[0]], &k1[at[1]], &x0[at[2]], &x1[at[3]], 15, &c, &d, 1);
      ASSERT_EQ(a[i], c);
      ASSERT_EQ(b[i], d);
    }
  }
}

// Elements of the given sizes and steps, compared with one key and one count at a time; bytes
// between the elements keep their values.
void check_each(DType to, std::int64_t n, std::int64_t gap, bool one_key, int firsts) {
  const auto size = static_cast<std::int64_t>(itemsize(to));
  const std::int64_t out_step = size + gap, key_step = one_key ? 0 : 8 + gap;
  const std::uint64_t offset = 0xfffffff0;
  std::vector<std::byte> keys(static_cast<std::size_t>(n * (8 + gap) + 8));
  std::vector<std::int64_t> first(static_cast<std::size_t>(n + 1));
  std::vector<std::byte> out(static_cast<std::size_t>(n * out_step + 1), std::byte{0x5a});
  for (std::int64_t i = 0; i <= n; ++i) {
    const std::uint32_t key[] = {static_cast<std::uint32_t>(i * 77),
                                 ~static_cast<std::uint32_t>(i)};
    if (i * key_step + 8 <= static_cast<std::int64_t>(keys.size()))
      std::memcpy(keys.data() + i * key_step, key, sizeof key);
    first[static_cast<std::size_t>(i)] = i * 0x10000001;
  }
  threefry_each(to,
                {.key = keys.data(),
                 .key_step = key_step,
                 .first = firsts == 0 ? nullptr : reinterpret_cast<const std::byte*>(first.data()),
                 .first_step = firsts == 2 ? 8 : 0,
                 .out = out.data(),
                 .out_step = out_step,
                 .n = n},
                offset);
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint32_t key[2];
    std::memcpy(key, keys.data() + i * key_step, sizeof key);
    const std::int64_t count = firsts == 2 ? first[static_cast<std::size_t>(i)] : 0;
    std::uint64_t got = 0;
    std::memcpy(&got, out.data() + i * out_step, static_cast<std::size_t>(size));
    ASSERT_EQ(got, bits_at(to, static_cast<std::uint64_t>(count) + offset, key))
        << "item size " << size << ", gap " << gap << ", key " << i << " of " << n;
    for (std::int64_t b = size; b < out_step; ++b)
      ASSERT_EQ(out[static_cast<std::size_t>(i * out_step + b)], std::byte{0x5a});
  }
  EXPECT_EQ(out.back(), std::byte{0x5a});
}

TEST(ThreefryKernel, HashesOneCountOfEachKey) {
  for (const DType to : {u8, u16, u32, u64, prng_key})
    for (const std::int64_t n : {0, 1, 3, 15, 16, 17, 33, 300})
      for (const std::int64_t gap : {0, 5})
        for (const bool one_key : {false, true})
          for (const int firsts : {0, 1, 2}) check_each(to, n, gap, one_key, firsts);
}

TEST(RandomBlock, FindsItsPlaceInTheWhole) {
  const auto check = [](const Shape& of, const Shape& shape) {
    const RandomBlock block(shape, of);
    std::int64_t i = 0;
    for (std::int64_t a = 0; a < shape[0]; ++a)
      for (std::int64_t b = 0; b < shape[1]; ++b)
        for (std::int64_t c = 0; c < shape[2]; ++c)
          ASSERT_EQ(block.index(i++), (a * of[1] + b) * of[2] + c);
  };
  check({4, 5, 6}, {4, 5, 6});
  check({4, 5, 6}, {2, 5, 6});
  check({4, 5, 6}, {4, 2, 6});
  check({4, 5, 6}, {4, 5, 3});
  check({4, 5, 6}, {1, 2, 3});
  check({4, 1, 6}, {2, 1, 6});
  EXPECT_EQ(RandomBlock({4, 5, 6}, {}).run(), 120);
  EXPECT_EQ(RandomBlock({2, 5, 6}, {4, 5, 6}).run(), 60);
  EXPECT_EQ(RandomBlock({}, {}).run(), 1);
}

}  // namespace
}  // namespace shmap::cpu
