// shmap-test: devices
// Samplers that draw until all is accepted, from keys of any generator.
#include <gtest/gtest.h>

#include "shmap/shmap.h"

namespace shmap {
namespace {

// Threefry as a user may write it, of words.
void define_by_hand() {
  static const bool once = [] {
    extend::define_generator(
        "by_hand",
        {.key_shape = {2},
         .seed = [](Array seed) { return extend::random_unwrap(random::key(seed)); },
         .split =
             [](Array words, Shape shape) {
               return extend::random_unwrap(random::split(extend::random_wrap(words), shape));
             },
         .random_bits =
             [](Array words, int width, Shape shape) {
               const DType dtype = width == 8 ? u8 : width == 16 ? u16 : width == 32 ? u32 : u64;
               return random::bits(extend::random_wrap(words), shape, dtype);
             },
         .fold_in =
             [](Array words, Array data) {
               return extend::random_unwrap(random::fold_in(extend::random_wrap(words), data));
             }});
    return true;
  }();
  EXPECT_TRUE(once);
}

TEST(Rejection, OfAUsersGeneratorIsAsOfTheSameBuiltIn) {
  define_by_hand();
  const Array a = array<float>({.1f, .8f, 3, 40}, {4});
  const Array key = random::key(5);
  const extend::GeneratorKey own = random::key(5, "by_hand");
  const auto same = [&](auto draw) {
    const Array want = draw(random::Key(key)), got = draw(random::Key(own));
    EXPECT_TRUE(all(got == want).template item<bool>()) << got << want;
    const Array fast = jit([&](extend::GeneratorKey k) { return draw(random::Key(k)); })(own);
    EXPECT_EQ(fast.type(), want.type());
    EXPECT_LT(max(abs(fast - want) / (abs(want) + 1e-3f)).template item<float>(), 1e-4);
  };
  same([&](random::Key k) { return random::gamma(k, a); });
  same([&](random::Key k) { return random::loggamma(k, a, {3, 4}); });
  same([&](random::Key k) { return random::beta(k, a, 2.f); });
  same([&](random::Key k) { return random::dirichlet(k, a, {3}); });
  same([&](random::Key k) { return random::poisson(k, a, {2, 4}); });
  same([&](random::Key k) { return random::ball(k, 3, 2, {4}); });
  same([&](random::Key k) { return random::generalized_normal(k, 1.5f, {4}); });
  EXPECT_EQ(random::gamma(own, 2.f, {0}).shape(), Shape({0}));
  EXPECT_EQ(random::gamma(own, 2.f).shape(), Shape());
}

TEST(Rejection, OfTheOriginalModeUnderTransforms) {
  const extend::GeneratorKey key = random::key(3, "threefry2x32_original");
  const Array a = array<float>({.5f, 2, 9, 30}, {4});
  const Array want = random::gamma(key, a);
  // In a body whose blocks have no keys of their own, one key gives all devices the same sample.
  const Mesh mesh = make_mesh({2}, {"i"});
  const auto body = [](extend::GeneratorKey k, Array x) { return random::gamma(k, x); };
  const Array got = shard_map(body, mesh, {P(), P()}, P())(key, a);
  EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
  // A batch of keys.
  const std::vector<extend::GeneratorKey> two = random::split(key);
  const extend::GeneratorKey both{stack({two[0].words, two[1].words}), key.generator};
  const Array batch = vmap(body, {0, none})(both, a);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(batch[static_cast<int>(i)].to_vector<float>(),
              random::gamma(two[i], a).to_vector<float>());
  // The derivative depends on the sample only, not on the generator that drew it.
  const Array slope = grad([&](Array x) { return sum(random::gamma(key, x)); })(a);
  EXPECT_TRUE(all(slope > 0.f).item<bool>()) << slope;
}

}  // namespace
}  // namespace shmap
