#include "core/base/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace shmap {
namespace {

TEST(Counters, CountEachOfThem) {
  reset_counters();
  count(Counter::kernel_launches);
  count(Counter::copies, 2);
  count(Counter::copied_bytes, 3);
  count(Counter::collectives, 4);
  count(Counter::collective_bytes, 5);
  count(Counter::allocations, 6);
  count(Counter::syncs, 7);
  const Counters c = counters();
  EXPECT_EQ(c.kernel_launches, 1);
  EXPECT_EQ(c.copies, 2);
  EXPECT_EQ(c.copied_bytes, 3);
  EXPECT_EQ(c.collectives, 4);
  EXPECT_EQ(c.collective_bytes, 5);
  EXPECT_EQ(c.allocations, 6);
  EXPECT_EQ(c.syncs, 7);
  reset_counters();
  EXPECT_EQ(counters().syncs, 0);
}

TEST(Counters, SumOverThreadsThatCameAndWent) {
  reset_counters();
  for (int round = 0; round < 5; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 10'000; ++i) count(Counter::copies);
      });
    }
    for (std::thread& t : threads) t.join();
  }
  EXPECT_EQ(counters().copies, 200'000);
}

TEST(Counters, AResetWhileOthersCountLosesNothing) {
  reset_counters();
  std::thread other([] {
    for (int i = 0; i < 100'000; ++i) count(Counter::syncs);
  });
  std::int64_t seen = 0;
  for (int i = 0; i < 100; ++i) {
    const std::int64_t now = counters().syncs;
    EXPECT_GE(now, seen);
    seen = now;
  }
  other.join();
  EXPECT_EQ(counters().syncs, 100'000);
}

}  // namespace
}  // namespace shmap
