// Faults of exchanges between threads that act as processes, and numbers that processes leave out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "core/processes/exchange_message.h"
#include "shmap/error.h"
#include "tests/processes/exchange_ranks.h"

namespace shmap::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ExchangeFaults : public ExchangesTest {};

TEST_P(ExchangeFaults, AnotherOperationIsAFaultInAll) {
  std::atomic<int> told{0};
  in_each(size(), [&](int r) {
    Loop loop(r, size(), 1, 10, /*adds=*/r == 1);
    loop.fill(0);
    try {
      at(r).exchanges->run(loop.exchange());
    } catch (const CollectiveError& e) {
      told += std::string(e.what()).find("out of step") != std::string::npos;
    }
    EXPECT_FALSE(at(r).exchanges->leave());
  });
  EXPECT_EQ(told, size());
  EXPECT_THAT(at(0).exchanges->fault(),
              AllOf(HasSubstr("sum of i32"), HasSubstr("gather of i32"), HasSubstr("here.cpp:7")));
}

std::vector<int> others_than(int rank, int ranks) {
  std::vector<int> others;
  for (int p = 0; p < ranks; ++p)
    if (p != rank) others.push_back(p);
  return others;
}

TEST_P(ExchangeFaults, WhatAllLeaveOutTheyGoOnAfter) {
  std::atomic<int> wrong{0}, left{0};
  in_each(size(), [&](int r) {
    Exchanges& exchanges = *at(r).exchanges;
    Loop loop(r, size(), 1, 10, /*adds=*/false);
    for (std::uint64_t number = 0; number < 30; ++number) {
      if (number % 3 == 1) {
        if (r == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        exchanges.leave_out(1, number, others_than(r, size()), "no memory");
        continue;
      }
      loop.fill(number);
      exchanges.run(loop.exchange());
      wrong += loop.wrong(size());
    }
    left += exchanges.leave();
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(left, size());
}

TEST_P(ExchangeFaults, WhatOneLeavesOutIsAFaultInAll) {
  std::atomic<int> told{0};
  in_each(size(), [&](int r) {
    Exchanges& exchanges = *at(r).exchanges;
    Loop loop(r, size(), 1, 10, /*adds=*/false);
    if (r == 0) exchanges.leave_out(1, 0, others_than(0, size()), "no memory");
    loop.fill(r == 0 ? 1 : 0);
    try {
      exchanges.run(loop.exchange());
    } catch (const CollectiveError& e) {
      told += std::string(e.what()).find("out of step with them") != std::string::npos;
    }
  });
  EXPECT_EQ(told, size());
  EXPECT_THAT(at(0).exchanges->fault(), AllOf(HasSubstr("process 0"), HasSubstr("no memory")));
}

// The others have ended the exchange of that number, in which they only sent to this one, and wait
// for nobody.
TEST_P(ExchangeFaults, WhatOneLeavesOutTooLateIsAFaultInAll) {
  std::atomic<int> sent{1};
  in_each(size(), [&](int r) {
    Exchanges& exchanges = *at(r).exchanges;
    if (r != 0) {
      Loop loop(r, size(), 1, 10, /*adds=*/false);
      loop.exchange().receives.clear();
      std::erase_if(loop.exchange().sends, [](const Parcel& parcel) { return parcel.peer != 0; });
      loop.fill(0);
      exchanges.run(loop.exchange());
      ++sent;
    } else {
      while (sent != size()) sched_yield();
      exchanges.leave_out(1, 0, others_than(0, size()), "no memory");
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (exchanges.fault().empty() && std::chrono::steady_clock::now() < until) sched_yield();
    EXPECT_THAT(exchanges.fault(), AllOf(HasSubstr("process 0"), HasSubstr("no memory")));
  });
}

// A receive that has begun cannot be taken back: its exchange ends, and its memory may be used
// again, only when all has been written to it.
TEST_P(ExchangeFaults, AfterAFaultMemoryIsKeptUntilNothingIsWrittenToItAnyMore) {
  if (at(0).link != nullptr) GTEST_SKIP() << "large parcels need no messages of their own";
  mail().hold_all_but(ExchangeMessage::kTag);
  std::vector<std::unique_ptr<Loop>> loops;
  std::vector<std::unique_ptr<Waiter>> waiters;
  for (int r = 0; r < size(); ++r) {
    Loop& loop = *loops.emplace_back(std::make_unique<Loop>(r, size(), 1, 20'000, false));
    loop.fill(0);
    at(r).exchanges->start(loop.exchange(), *waiters.emplace_back(std::make_unique<Waiter>()));
  }
  // The receives begin when the messages that announce them have come.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  at(0).exchanges->report("a fault of the test");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int r = 0; r < size(); ++r) {
    EXPECT_THAT(at(r).exchanges->fault(), HasSubstr("a fault of the test"));
    EXPECT_FALSE(waiters[static_cast<std::size_t>(r)]->done);
  }
  mail().go_on();
  for (int r = 0; r < size(); ++r) {
    EXPECT_THROW(waiters[static_cast<std::size_t>(r)]->wait(*at(r).exchanges, false),
                 CollectiveError);
    EXPECT_EQ(loops[static_cast<std::size_t>(r)]->wrong_of((r + 1) % size()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ExchangeFaults, kExchangeForms, name_of);

}  // namespace
}  // namespace shmap::test
