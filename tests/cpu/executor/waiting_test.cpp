#include "core/cpu/executor/waiting.h"

#include <gtest/gtest.h>

#include <chrono>

namespace shmap::cpu {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr Clock::time_point kStart{std::chrono::hours(1)};

TEST(WakingTime, ApproachesWhatWakingTakes) {
  WakingTime waking;
  EXPECT_EQ(waking.mean(), nanoseconds(kSpin));
  for (int k = 0; k < 40; ++k) {
    waking.begin(kStart);
    waking.end(kStart + microseconds(400));
  }
  EXPECT_GT(waking.mean(), microseconds(399));
  EXPECT_LE(waking.mean(), microseconds(400));
}

TEST(WakingTime, StaysBetweenItsBounds) {
  WakingTime waking;
  for (int k = 0; k < 100; ++k) {
    waking.begin(kStart);
    waking.end(kStart + microseconds(1));
    EXPECT_EQ(waking.mean(), nanoseconds(kSpin));
  }
  for (int k = 0; k < 100; ++k) {
    waking.begin(kStart);
    waking.end(kStart + std::chrono::seconds(1));
    EXPECT_LE(waking.mean(), nanoseconds(kMostSpin));
  }
}

TEST(WakingTime, CountsTheFirstCallThatWokeAndTheFirstWorkerThatGoesOn) {
  WakingTime waking;
  waking.end(kStart);  // nobody was woken
  EXPECT_EQ(waking.mean(), nanoseconds(kSpin));
  waking.begin(kStart);
  waking.begin(kStart + microseconds(600));
  waking.end(kStart + microseconds(630));
  const nanoseconds once = waking.mean();
  EXPECT_EQ(once, (3 * nanoseconds(kSpin) + microseconds(630)) / 4);
  waking.end(kStart + microseconds(900));
  EXPECT_EQ(waking.mean(), once);
}

TEST(WorkersToWake, AsManyAsThereArePartsWhereNobodyLooksForWork) {
  EXPECT_EQ(workers_to_wake(2, {.workers = 2, .cores = 2, .sleepers = 2}, true), 2);
  EXPECT_EQ(workers_to_wake(1, {.workers = 2, .cores = 2, .sleepers = 2}, true), 1);
  EXPECT_EQ(workers_to_wake(8, {.workers = 4, .cores = 4, .active = 1, .sleepers = 3}, true), 3);
  EXPECT_EQ(workers_to_wake(0, {.workers = 2, .cores = 2, .sleepers = 2}, true), 0);
}

TEST(WorkersToWake, NoneForTheCoreOfACallerThatHelps) {
  const Load two{.workers = 2, .cores = 2, .spinners = 1, .sleepers = 1};
  EXPECT_EQ(workers_to_wake(2, two, true), 0);
  EXPECT_EQ(workers_to_wake(2, two, false), 1);
  const Load eight{.workers = 8, .cores = 8, .spinners = 1, .sleepers = 7};
  EXPECT_EQ(workers_to_wake(8, eight, true), 6);
  EXPECT_EQ(workers_to_wake(8, eight, false), 7);
  EXPECT_EQ(workers_to_wake(2, eight, true), 1);
  const Load looking{.workers = 8, .cores = 8, .spinners = 3, .sleepers = 5};
  EXPECT_EQ(workers_to_wake(1, looking, true), 0);
  EXPECT_EQ(workers_to_wake(1, looking, false), 0);
  const Load one_core{.workers = 4, .cores = 1, .spinners = 1, .sleepers = 3};
  EXPECT_EQ(workers_to_wake(4, one_core, true), 0);
}

// A worker that ends a task makes the next one ready, while the caller waits for the last and
// looks.
TEST(WorkersToWake, NoneForAWaitingThreadThatLooks) {
  const Load two{.workers = 2, .cores = 2, .active = 1, .sleepers = 1, .lookers = 1};
  EXPECT_EQ(workers_to_wake(2, two, true), 0);
  EXPECT_EQ(workers_to_wake(2, two, false), 1);  // waiting threads do not run user code
  const Load eight{.workers = 8, .cores = 8, .active = 1, .sleepers = 7, .lookers = 1};
  EXPECT_EQ(workers_to_wake(8, eight, true), 5);
  EXPECT_EQ(workers_to_wake(2, eight, true), 1);
  const Load both{.workers = 8, .cores = 8, .spinners = 1, .sleepers = 7, .lookers = 2};
  EXPECT_EQ(workers_to_wake(3, both, true), 0);
  EXPECT_EQ(workers_to_wake(4, both, true), 1);
}

// Two tasks become ready one after the other, before the thread that looks has taken the first.
TEST(WorkersToWake, OneForEachPartThatNobodyIsAboutToTake) {
  const Load eight{.workers = 8, .cores = 8, .sleepers = 8, .lookers = 1};
  EXPECT_EQ(workers_to_wake(1, eight, true), 0);
  EXPECT_EQ(workers_to_wake(2, eight, true), 1);
  const Load one_woken{.workers = 8, .cores = 8, .sleepers = 8, .woken = 1, .lookers = 1};
  EXPECT_EQ(workers_to_wake(2, one_woken, true), 0);
  EXPECT_EQ(workers_to_wake(3, one_woken, true), 1);
  const Load alone{.workers = 8, .cores = 8, .sleepers = 8, .woken = 2};
  EXPECT_EQ(workers_to_wake(2, alone, true), 0);
  EXPECT_EQ(workers_to_wake(3, alone, true), 1);
}

TEST(WorkersToWake, NoMoreThanSleepOrMayRun) {
  const Load all_woken{.workers = 4, .cores = 4, .active = 2, .sleepers = 2, .woken = 2};
  EXPECT_EQ(workers_to_wake(8, all_woken, true), 0);
  const Load two{.workers = 2, .cores = 4, .active = 1, .sleepers = 2, .woken = 1};
  EXPECT_EQ(workers_to_wake(8, two, true), 0);
}

}  // namespace
}  // namespace shmap::cpu
