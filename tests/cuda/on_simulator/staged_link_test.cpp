// The link through pinned host memory, on four virtual devices of one GPU, each with its own memory
// space.
#include <cuda_sim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/device/staged_link.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

Mesh ring() { return make_mesh({4}, "i"); }
Array turned(Array x) { return ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}}); }

// Values of i32 that differ in all places: n a device.
std::vector<std::int32_t> values(std::int64_t n) {
  std::vector<std::int32_t> v(static_cast<std::size_t>(4 * n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<std::int32_t>(i * 2654435761u);
  return v;
}
std::vector<std::int32_t> rotated(std::vector<std::int32_t> v, std::int64_t n) {
  std::rotate(v.begin(), v.end() - n, v.end());
  return v;
}

// The number of copies since record_calls(true), and the most bytes of one copy.
struct Copies {
  int count = 0;
  std::int64_t most = 0;
};
Copies copies() {
  Copies c;
  for (const std::string& call : shmap_sim::calls()) {
    if (call.rfind("cudaMemcpyAsync ", 0) != 0) continue;
    ++c.count;
    c.most = std::max<std::int64_t>(c.most, std::stoll(call.substr(16)));
  }
  return c;
}

class StagedLink : public ::testing::Test {
 protected:
  void TearDown() override {
    shmap_sim::record_calls(false);
    EXPECT_FALSE(shmap_sim::overrun_seen());
  }
};

TEST_F(StagedLink, EverySizeArrivesWhateverTheOrder) {
  const auto f = shard_map(turned, ring(), P("i"), P("i"));
  // Elements: below a piece, whole pieces, and past them.
  for (const std::int64_t n : {std::int64_t{1}, kMiB / 8, kMiB / 8 + 1, kMiB, 3 * kMiB + 7}) {
    const std::vector<std::int32_t> v = values(n);
    const Array x = device_put(array<std::int32_t>(v, {4 * n}), NamedSharding(ring(), P("i")));
    for (unsigned seed = 1; seed <= 3; ++seed) {
      shmap_sim::set_seed(seed);
      EXPECT_EQ(f(x).to_vector<std::int32_t>(), rotated(v, n)) << n;
      EXPECT_EQ(f(f(x)).to_vector<std::int32_t>(), rotated(rotated(v, n), n)) << n;
    }
  }
}

TEST_F(StagedLink, ABlockGoesInPiecesThroughTheHost) {
  const std::int64_t n = 4 * kMiB;  // 16 MiB a device: eight pieces of 2 MiB, in and out
  const Array x = device_put(zeros({4 * n}, i32), NamedSharding(ring(), P("i")));
  x.block_until_ready();
  const auto f = shard_map(turned, ring(), P("i"), P("i"));
  f(x).block_until_ready();
  const shmap_sim::Counts before = shmap_sim::counts();
  shmap_sim::record_calls(true);
  for (int i = 0; i < 3; ++i) f(x).block_until_ready();
  const Copies c = copies();
  EXPECT_EQ(c.count, 3 * 4 * 16);
  EXPECT_EQ(c.most, 2 * kMiB);
  EXPECT_EQ(shmap_sim::counts().pinned, before.pinned);
  EXPECT_EQ(shmap_sim::counts().streams, before.streams);
}

TEST_F(StagedLink, PlansAreReplayedWithBuffersOfTheirOwn) {
  const std::int64_t n = kMiB + 3;
  const std::vector<std::int32_t> v = values(n);
  const Array x = device_put(array<std::int32_t>(v, {4 * n}), NamedSharding(ring(), P("i")));
  const auto eager =
      shard_map([](Array b) { return turned(turned(b) + 1) * 2; }, ring(), P("i"), P("i"));
  const std::vector<std::int32_t> wanted = eager(x).to_vector<std::int32_t>();
  {
    const auto planned = jit(eager);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(planned(x).to_vector<std::int32_t>(), wanted);
    const shmap_sim::Counts before = shmap_sim::counts();
    shmap_sim::record_calls(true);
    for (unsigned seed = 1; seed <= 4; ++seed) {
      shmap_sim::set_seed(seed);
      EXPECT_EQ(planned(x).to_vector<std::int32_t>(), wanted);
      EXPECT_EQ(eager(x).to_vector<std::int32_t>(), wanted);  // beside it
    }
    EXPECT_EQ(shmap_sim::counts().pinned, before.pinned);
    EXPECT_EQ(shmap_sim::counts().streams, before.streams);
  }
  // The memory of the plan is free for the next one.
  const auto again = jit(eager);
  for (int i = 0; i < 3; ++i) again(x).block_until_ready();
  const shmap_sim::Counts before = shmap_sim::counts();
  for (int k = 0; k < 3; ++k) {
    const auto other = jit([&](Array b) { return eager(b); });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(other(x).to_vector<std::int32_t>(), wanted);
  }
  EXPECT_LE(shmap_sim::counts().pinned, before.pinned + 8);
}

TEST_F(StagedLink, GathersAndBroadcastsGoThroughItToo) {
  const std::int64_t n = kMiB / 2 + 1;
  const std::vector<std::int32_t> v = values(n);
  const Array x = device_put(array<std::int32_t>(v, {4 * n}), NamedSharding(ring(), P("i")));
  shmap_sim::record_calls(true);
  const Array all = shard_map([](Array b) { return all_gather(b, "i", {.tiled = true}); }, ring(),
                              P("i"), P(), {.check_vma = false})(x);
  all.block_until_ready();
  // In pieces, in and out: the blocks of the three others, and the whole for each of these.
  EXPECT_GE(copies().count, 3 * 2 * 4 + 3 * 2 * 8);
  EXPECT_EQ(all.to_vector<std::int32_t>(), v);
  const Array one = shard_map([](Array b) { return broadcast_from(b, "i", 2); }, ring(), P("i"),
                              P(), {.check_vma = false})(x);
  EXPECT_EQ(one.to_vector<std::int32_t>(),
            std::vector<std::int32_t>(v.begin() + 2 * n, v.begin() + 3 * n));
}

TEST(StagedLinkDeath, TheVariableIsRead) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("SHMAP_LINK", "slow", 1);
        test::expect_error<ValueError>([] { zeros({4}).block_until_ready(); },
                                       {"SHMAP_LINK", "slow", "direct", "staged"});
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("SHMAP_LINK", "direct", 1);
        const Array x = device_put(zeros({4 * kMiB}), NamedSharding(ring(), P("i")));
        const auto f = shard_map(turned, ring(), P("i"), P("i"));
        f(x).block_until_ready();
        shmap_sim::record_calls(true);
        f(x).block_until_ready();
        EXPECT_EQ(copies().count, 4);
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  // GPUs of their own, one graph for all and one for each.
  for (const char* graphs : {"one", "per_gpu"}) {
    EXPECT_EXIT(
        {
          setenv("SHMAP_SIM_GPUS", "4", 1);
          setenv("SHMAP_DEVICES", "cuda", 1);
          setenv("SHMAP_GRAPHS", graphs, 1);
          const std::int64_t n = kMiB;
          const std::vector<std::int32_t> v = values(n);
          const Array x =
              device_put(array<std::int32_t>(v, {4 * n}), NamedSharding(ring(), P("i")));
          const auto f = jit(shard_map(turned, ring(), P("i"), P("i")));
          for (int i = 0; i < 4; ++i) EXPECT_EQ(f(x).to_vector<std::int32_t>(), rotated(v, n));
          std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

}  // namespace
}  // namespace shmap

int main(int argc, char** argv) {
  setenv("SHMAP_SIM_GPUS", "4", 0);
  setenv("SHMAP_DEVICES", "cuda:0x4/4", 1);
  setenv("SHMAP_LINK", "staged", 1);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
