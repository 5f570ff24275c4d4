// SHMAP_CHECK_KEYS: a key that is used a second time is an error.
#include <gtest/gtest.h>

#include <cstdlib>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

// The variable is read at the first use of a key.
const int kSet = setenv("SHMAP_CHECK_KEYS", "1", 1);

TEST(CheckedKeys, AreUsedOnce) {
  ASSERT_EQ(kSet, 0);
  const Array key = random::key(0);
  random::fold_in(key, 1);  // does not use the key up
  random::fold_in(key, 2);
  random::normal(key, {2});
  expect_error<ValueError>([&] { random::bits(key); },
                           {"bits", "used before, by normal", "random::split", "key_check_test.cpp",
                            "SHMAP_CHECK_KEYS"});
  expect_error<ValueError>([&] { random::split(key); }, {"split", "used before, by normal"});
  auto [k1, k2] = random::split<2>(random::key(0));
  random::gamma(k1, ones({3}));
  random::permutation(k2, 10);
  expect_error<ValueError>([&] { random::uniform(k2); }, {"uniform", "by permutation"});
}

TEST(CheckedKeys, InProgramsAreUsedOnce) {
  const auto twice = [](Array key) { return random::normal(key) + random::uniform(key); };
  expect_error<ValueError>([&] { jit(twice)(random::key(0)); },
                           {"used before, by", "random::split"});
  const auto once = [](Array key) {
    auto [a, b] = random::split<2>(key);
    return random::normal(a) + random::uniform(b);
  };
  const auto fast = jit(once);
  EXPECT_EQ(fast(random::key(0)).item<float>(), fast(random::key(0)).item<float>());
}

}  // namespace
}  // namespace shmap
