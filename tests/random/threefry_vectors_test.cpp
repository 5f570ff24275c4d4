// Known values of threefry2x32 and of the samplers made of it, as literals: JAX's in its original
// mode, and in the mode that is its default today; the bulk vector in full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::Pointwise;
using Words = std::vector<std::uint32_t>;

// Seeds of JAX's tests: adler32 of the names bitsthreefry2x32 and so on.
constexpr std::int64_t kBitsSeed = 942802475, kUniformSeed = 1338574713, kRandintSeed = 1319372649,
                       kNormalSeed = 1193674498;

extend::GeneratorKey original(std::int64_t seed) {
  return random::key(seed, "threefry2x32_original");
}
template <class T>
std::vector<T> bits(random::Key key, std::int64_t n, DType dtype) {
  return random::bits(key, {n}, dtype).to_vector<T>();
}
Words words(const Array& keys) { return extend::random_unwrap(keys).to_vector<std::uint32_t>(); }

TEST(ThreefryVectors, TenMillionOfOneCount) {
  constexpr std::int64_t kHalf = 5'000'000;
  const Array counts = concatenate({full({kHalf}, 0x243f6a88u), full({kHalf}, 0x85a308d3u)});
  const Array key = array<std::uint32_t>({0x13198a2eu, 0x03707344u}, {2});
  const Array got = extend::threefry_2x32(key, counts);
  EXPECT_EQ(got.type(), ShapedArray({2 * kHalf}, u32));
  EXPECT_TRUE(all(got[range(0, kHalf)] == 0xc4923a9cu).item<bool>());
  EXPECT_TRUE(all(got[range(kHalf, 2 * kHalf)] == 0x483df7a0u).item<bool>());
}

TEST(ThreefryVectors, OfAnOddNumberOfCounts) {
  const Array key = array<std::uint32_t>({1, 2}, {2});
  EXPECT_THAT(extend::threefry_2x32(key, arange(7, u32)).to_vector<std::uint32_t>(),
              ElementsAre(1226884191u, 1606051822u, 4059822814u, 2392469163u, 508220933u,
                          2624171580u, 2195475382u));
}

TEST(ThreefryVectors, SeedsAreBothWordsOfAKey) {
  EXPECT_THAT(words(random::key(0)), ElementsAre(0u, 0u));
  EXPECT_THAT(words(random::key(1)), ElementsAre(0u, 1u));
  EXPECT_THAT(words(random::key((std::int64_t{1} << 31) + 99)), ElementsAre(0u, 2147483747u));
  EXPECT_THAT(words(random::key((std::int64_t{1} << 33) + 5)), ElementsAre(2u, 5u));
  // Seeds of 32 bits, as all seeds are in JAX's 32-bit mode.
  EXPECT_THAT(words(random::key(full({}, -1, i32))), ElementsAre(0u, 4294967295u));
  EXPECT_THAT(words(random::key(full({}, -2, i32))), ElementsAre(0u, 4294967294u));
}

TEST(ThreefryVectors, BitsOfTheOriginalMode) {
  const extend::GeneratorKey key = original(1701);
  EXPECT_THAT(bits<std::uint8_t>(key, 3, u8), ElementsAre(216, 115, 43));
  EXPECT_THAT(bits<std::uint16_t>(key, 3, u16), ElementsAre(41682, 1300, 55017));
  EXPECT_THAT(bits<std::uint32_t>(key, 3, u32), ElementsAre(56197195u, 4200222568u, 961309823u));
  EXPECT_THAT(bits<std::uint64_t>(key, 3, u64),
              ElementsAre(3982329540505020460u, 16822122385914693683u, 7882654074788531506u));
}

TEST(ThreefryVectors, BitsOfTheOriginalModeBySeedOfAName) {
  const extend::GeneratorKey key = original(kBitsSeed);
  EXPECT_THAT(bits<std::uint8_t>(key, 5, u8), ElementsAre(10, 158, 82, 54, 158));
  EXPECT_THAT(bits<std::uint16_t>(key, 5, u16), ElementsAre(6738, 38161, 50695, 57337, 61600));
  EXPECT_THAT(bits<std::uint32_t>(key, 5, u32),
              ElementsAre(1978747883u, 4134381225u, 3628107870u, 689687174u, 2788938207u));
  EXPECT_THAT(bits<std::uint64_t>(key, 5, u64),
              ElementsAre(17649965731882839947u, 1415307058040849897u, 8282622628079774249u,
                          14024425113645909402u, 2012979996110532418u));
}

TEST(ThreefryVectors, SamplersOfTheOriginalModeBySeedOfAName) {
  const std::vector<float> uniforms = {.298671f, .073213f, .873356f, .260549f, .412797f};
  EXPECT_THAT(random::uniform(original(kUniformSeed), {5}).to_vector<float>(),
              Pointwise(FloatNear(6e-7f), uniforms));
  EXPECT_THAT(random::randint(original(kRandintSeed), {5}, 0, 10).to_vector<std::int32_t>(),
              ElementsAre(0, 5, 7, 7, 5));
  const std::vector<float> normals = {-1.173234f, -1.511662f, .070593f, -.099764f, 1.052845f};
  EXPECT_THAT(random::normal(original(kNormalSeed), {5}).to_vector<float>(),
              Pointwise(FloatNear(1.2e-6f), normals));
}

TEST(ThreefryVectors, KeysAndIntegersOfTheOriginalMode) {
  const extend::GeneratorKey key = original(0);
  const std::vector<extend::GeneratorKey> keys = random::split(key, 4);
  const Words want[] = {{2285895361u, 1501764800u},
                        {1518642379u, 4090693311u},
                        {433833334u, 4221794875u},
                        {839183663u, 3740430601u}};
  ASSERT_EQ(keys.size(), 4u);
  for (std::size_t k = 0; k < 4; ++k)
    EXPECT_EQ(keys[k].words.to_vector<std::uint32_t>(), want[k]) << k;
  EXPECT_THAT(random::fold_in(key, 4).words.to_vector<std::uint32_t>(),
              ElementsAre(2285895361u, 433833334u));
  EXPECT_THAT(random::randint(key, {3, 3}, 0, 8).to_vector<std::int32_t>(),
              ElementsAre(2, 1, 3, 6, 1, 5, 6, 3, 4));
  EXPECT_THAT(random::randint(key, {3, 3}, 0, 8, i64).to_vector<std::int64_t>(),
              ElementsAre(7, 2, 6, 2, 1, 0, 6, 7, 7));
}

TEST(ThreefryVectors, KeysOfThePartitionableMode) {
  EXPECT_THAT(words(random::split(random::key(0), 2)),
              ElementsAre(1797259609u, 2579123966u, 928981903u, 3453687069u));
  EXPECT_THAT(words(random::split(random::key(0), 4)),
              ElementsAre(1797259609u, 2579123966u, 928981903u, 3453687069u, 4146024105u,
                          2718843009u, 2467461003u, 3840466878u));
  EXPECT_THAT(words(random::split(random::key(42), 2)),
              ElementsAre(1832780943u, 270669613u, 64467757u, 2916123636u));
  const Words folded[] = {
      {1146130490u, 1747753119u}, {679946246u, 1419780272u}, {2305295554u, 566369263u}};
  const Array split = random::split(random::key(72), 3);
  for (std::int64_t k = 0; k < 3; ++k) {
    const Words& want = folded[static_cast<std::size_t>(k)];
    EXPECT_EQ(words(random::fold_in(random::key(72), k)), want) << k;
    EXPECT_EQ(words(split[k]), want) << k;
  }
}

TEST(ThreefryVectors, BitsOfThePartitionableMode) {
  EXPECT_THAT(
      bits<std::uint32_t>(random::key(0), 6, u32),
      ElementsAre(0xf29a4fa7u, 0xfa843692u, 0x55110e28u, 0x77faa835u, 0x91e43bb7u, 0x2a5e6943u));
  const Array key = random::key(1701);
  EXPECT_THAT(bits<std::uint8_t>(key, 3, u8), ElementsAre(37, 59, 52));
  EXPECT_THAT(bits<std::uint16_t>(key, 3, u16), ElementsAre(42789, 29755, 60468));
  EXPECT_THAT(bits<std::uint32_t>(key, 3, u32), ElementsAre(1111271205u, 2679469115u, 974515252u));
  EXPECT_THAT(bits<std::uint64_t>(key, 3, u64),
              ElementsAre(3182764935064573181u, 366096495144982249u, 241365115613244543u));
}

TEST(ThreefryVectors, UniformsAndIntegersOfThePartitionableMode) {
  const std::vector<float> of_zero = {.9476670027f, .9785798788f, .3322914839f, .4686684608f,
                                      .5698887110f};
  EXPECT_THAT(random::uniform(random::key(0), {5}).to_vector<float>(), ElementsAreArray(of_zero));
  const std::vector<float> of_42 = {.4887095690f, .6797971725f, .6162714958f, .5610160828f,
                                    .4506446123f};
  EXPECT_THAT(random::uniform(random::key(42), {5}).to_vector<float>(), ElementsAreArray(of_42));
  EXPECT_THAT(random::randint(random::key(0), {9}, 0, 8).to_vector<std::int32_t>(),
              ElementsAre(5, 0, 0, 5, 3, 3, 0, 7, 5));
}

}  // namespace
}  // namespace shmap
