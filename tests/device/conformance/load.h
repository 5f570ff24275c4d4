// Many tasks in bounded memory, and several threads at once.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "tests/device/conformance/fixture.h"

namespace shmap::testing {

template <class Traits>
class LoadConformance : public DeviceFixture<Traits> {};
TYPED_TEST_SUITE_P(LoadConformance);

TYPED_TEST_P(LoadConformance, AHundredThousandTasksRunInBoundedMemory) {
  this->open("8");
  constexpr int kTasks = 100'000;
  std::atomic<std::int64_t> ran{0};
  for (int i = 0; i < kTasks; ++i) {
    const LocalDevice& d = this->device(static_cast<std::size_t>(i) % 8);
    this->run(i % 16 < 8 ? d.compute : d.comm,
              [&](const TaskContext&) { ran.fetch_add(1, std::memory_order_relaxed); });
  }
  this->backend->synchronize();
  EXPECT_EQ(ran.load(), kTasks);
  EXPECT_LE(this->closures.peak.load(), 5000);
}

TYPED_TEST_P(LoadConformance, TwoThreadsUseItAtOnce) {
  this->open("4");
  constexpr int kRounds = 1000;
  auto user = [&](std::size_t id) {
    MemorySpace& space = *this->device(id).space;
    BufferRef x = this->number(static_cast<std::int32_t>(id), id);
    std::int32_t wanted = static_cast<std::int32_t>(id);
    for (std::int32_t i = 0; i < kRounds; ++i) {
      // Both threads use the streams of all devices.
      const LocalDevice& d = this->device(static_cast<std::size_t>(i) % 4);
      BufferRef next = space.allocate(4);
      const Event wrote = this->run(
          i % 2 == 0 ? d.compute : d.comm,
          [to = this->at(next), from = this->at(x), i](const TaskContext& c) {
            TypeParam::copy(c.native, to, from);
            TypeParam::mix(c.native, to, i);
          },
          {x->def()}, i % 3 == 0 ? 0 : kLarge);
      {
        std::lock_guard lock(this->backend->submit_mutex());
        next->def() = wrote;
        x->add_use(wrote);
      }
      x = next;
      wanted = this->mixed(wanted, i);
      if (i % 100 == 0) {
        x->def().wait();
        ASSERT_EQ(this->value(x), wanted) << this->backend->repro();
      }
    }
    x->def().wait();
    EXPECT_EQ(this->value(x), wanted) << this->backend->repro();
  };
  std::thread other(user, 1);
  user(0);
  other.join();
}

REGISTER_TYPED_TEST_SUITE_P(LoadConformance, AHundredThousandTasksRunInBoundedMemory,
                            TwoThreadsUseItAtOnce);

}  // namespace shmap::testing
