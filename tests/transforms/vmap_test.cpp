// shmap-test: devices
#include "shmap/vmap.h"

#include <gtest/gtest.h>

#include "shmap/shmap.h"

namespace shmap {
namespace {

TEST(Vmap, AddsAVectorToEach) {
  Array x = reshape(arange(6), {2, 3}), y = arange(3);
  Array z = vmap([](Array a, Array b) { return a + b; }, {0, none})(x, y);
  EXPECT_TRUE(all(z == x + y).item<bool>());
  auto f = [](Array a, Array b) { return a + b; };
  Array both = vmap(vmap(f, {none, 0}), {0, none})(x, x);
  EXPECT_EQ(both.shape(), Shape({2, 2, 3}));
}

}  // namespace
}  // namespace shmap
