// Collectives in branches and loops that only some devices take, in layouts in which each process
// has devices of one way or of all (tests/CMakeLists.txt runs it as 2 x 4, 4 x 2, 3 x 2 and 3 x 4).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

// Two rows, whose devices meet over "i" in different processes. A function under jit is captured
// where all devices call it, and called where the devices of one column alone do, and the other way
// around.
TEST(ProcessBranches, CapturedWhereAllDevicesAndLaunchedWhereSomeCallIt) {
  const std::int64_t columns = device_count() / 2;
  const Mesh mesh = make_mesh({2, columns}, axes("i", "j"));
  const Array x =
      device_put(reshape(arange(device_count()), {2, columns}), NamedSharding(mesh, P("i", "j")));
  for (const bool first_in_branch : {false, true}) {
    SCOPED_TRACE(first_in_branch);
    const auto sum = jit([](Array b) { return psum(b * 10.f, "i"); });
    const auto in_branch = [&](Array b) {
      return cond(
          axis_index("j") == 0, [&](Array c) { return sum(c); },
          [](Array c) { return psum(c, "i"); }, b);
    };
    const auto f = shard_map(
        [&](Array b) {
          Array y = first_in_branch ? in_branch(b) : sum(b);
          for (int k = 0; k < 3; ++k) y = y + 100.f * in_branch(b) + 10000.f * sum(b);
          return y;
        },
        mesh, {P("i", "j")}, P(none, "j"));
    for (int call = 0; call < 3; ++call) {
      for (const Shard& shard : f(x).addressable_shards()) {
        const std::int64_t column = shard.index[1].start;
        const auto both = static_cast<float>(2 * column + columns);
        const float branch = column == 0 ? 10 * both : both;
        const float want = (first_in_branch ? branch : 10 * both) + 300 * branch + 300000 * both;
        EXPECT_EQ(shard.data.to_vector<float>(), std::vector<float>{want})
            << "call " << call << ", column " << column;
      }
    }
  }
}

}  // namespace
}  // namespace shmap
