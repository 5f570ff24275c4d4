// The effects of a failed task on tasks that wait for it, on tasks that do not, and on the caller.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "tests/device/conformance/fixture.h"

namespace shmap::testing {

template <class Traits>
class FailureConformance : public DeviceFixture<Traits> {};
TYPED_TEST_SUITE_P(FailureConformance);

TYPED_TEST_P(FailureConformance, AnErrorPoisonsWhatWaitsForIt) {
  this->open("2");
  for (std::int64_t cost : {std::int64_t{0}, kLarge}) {
    const BufferRef x = this->number(3), y = this->number(4);
    const Event bad = this->fail(this->device(0).compute, "boom", {}, cost);
    const Event after = this->mix(this->device(1).compute, this->at(x), 1, {bad}, cost);
    const Event later = this->mix(this->device(1).comm, this->at(x), 2, {Event(), after}, cost);
    const Event beside = this->mix(this->device(0).compute, this->at(y), 5, {}, cost);
    for (int again = 0; again < 2; ++again) {
      EXPECT_THAT(this->what_of(later), ::testing::StartsWith("boom"));
      EXPECT_THAT(this->what_of(bad), ::testing::StartsWith("boom"));
    }
    EXPECT_TRUE(after.done());
    EXPECT_TRUE(after.failed());
    EXPECT_EQ(after.error(), bad.error());
    EXPECT_NO_THROW(beside.wait());  // ordered after it, but not made from it
    EXPECT_EQ(this->value(x), 3);
    EXPECT_EQ(this->value(y), this->mixed(4, 5));
    // Tasks after a failure work as before.
    this->mix(this->device(1).compute, this->at(x), 9, {}, cost).wait();
    EXPECT_EQ(this->value(x), this->mixed(3, 9));
  }
  EXPECT_NO_THROW(this->backend->synchronize());  // seen already
}

TYPED_TEST_P(FailureConformance, AnErrorDoesNotPoisonWhatIsOnlyOrderedAfterIt) {
  this->open("2");
  for (std::int64_t cost : {std::int64_t{0}, kLarge}) {
    const BufferRef x = this->number(3), y = this->number(4);
    const Event wrote = this->mix(this->device(1).comm, this->at(y), 1, {}, cost);
    const Event bad = this->fail(this->device(0).compute, "boom", {wrote}, cost);
    const Task task =
        this->closures.task([to = this->at(x), from = this->at(y)](
                                const TaskContext& c) { TypeParam::add(c.native, to, from); },
                            cost);
    Event after;
    {
      const std::vector<Event> order{bad};
      std::lock_guard lock(this->backend->submit_mutex());
      after = this->device(1).compute->enqueue(task, {}, order);
    }
    EXPECT_NO_THROW(after.wait());
    EXPECT_EQ(this->value(x), this->mixed(3, this->mixed(4, 1)));
    EXPECT_THAT(this->what_of(bad), ::testing::StartsWith("boom"));
  }
}

TYPED_TEST_P(FailureConformance, SynchronizeRethrowsAnUnseenErrorOnce) {
  this->open("2");
  const Event bad = this->fail(this->device(0).compute, "unseen");
  this->fail(this->device(1).compute, "a second one");
  EXPECT_THROW(this->backend->synchronize(), ValueError);
  EXPECT_NO_THROW(this->backend->synchronize());
  EXPECT_THAT(this->what_of(bad), ::testing::StartsWith("unseen"));  // the value stays poisoned
}

TYPED_TEST_P(FailureConformance, AThousandFailuresLeaveNothingBehind) {
  this->open("4");
  const BufferRef x = this->number(1);
  for (int i = 0; i < 1000; ++i) {
    const Event bad = this->fail(this->device(0).compute, "again", {}, i % 2 == 0 ? 0 : kLarge);
    const Event after = this->mix(this->device(1).compute, this->at(x), 1, {bad});
    EXPECT_THROW(after.wait(), ValueError);
  }
  EXPECT_EQ(this->value(x), 1);
  EXPECT_EQ(this->closures.dropped.load(), 2000);
}

TYPED_TEST_P(FailureConformance, ForeignExceptionsAreRethrown) {
  this->open("1");
  const Event e = this->run(this->device().compute, [](const TaskContext&) { throw 42; });
  EXPECT_THROW(e.wait(), int);
}

TYPED_TEST_P(FailureConformance, ATaskMayNotEnqueueOrWait) {
  this->open("2");
  Backend* b = this->backend.get();
  CaptureScope capture(*b);
  const Ref<Graph> graph = capture.end();
  for (std::int64_t cost : {std::int64_t{0}, kLarge}) {
    EXPECT_THROW(
        this->run(
                this->device().compute, [](const TaskContext&) { Event().wait(); }, {}, cost)
            .wait(),
        Error);
    EXPECT_THROW(this->run(
                         this->device().compute,
                         [](const TaskContext& c) { c.stream.enqueue(Task(), {}); }, {}, cost)
                     .wait(),
                 Error);
    EXPECT_THROW(
        this->run(
                this->device().compute, [=](const TaskContext&) { b->synchronize(); }, {}, cost)
            .wait(),
        Error);
    EXPECT_THROW(
        this->run(
                this->device().compute,
                [=](const TaskContext&) { std::lock_guard lock(b->submit_mutex()); }, {}, cost)
            .wait(),
        Error);
    EXPECT_THROW(
        this->run(
                this->device().compute, [=](const TaskContext&) { b->begin_capture(); }, {}, cost)
            .wait(),
        Error);
    EXPECT_THROW(
        this->run(
                this->device().compute, [graph](const TaskContext&) { graph->launch(); }, {}, cost)
            .wait(),
        Error);
    EXPECT_FALSE(in_task());
    EXPECT_FALSE(capturing());
  }
}

TYPED_TEST_P(FailureConformance, AFailingPartFailsTheTask) {
  this->open("1");
  const Event e = this->run(
      this->device().compute,
      [](const TaskContext& c) {
        if (c.part == 3) throw ValueError("part three");
      },
      {}, kLarge, 8);
  EXPECT_THAT(this->what_of(e), ::testing::StartsWith("part three"));
}

// The args of a task are dropped by every call that refuses the task.
TYPED_TEST_P(FailureConformance, ARefusedTaskIsDropped) {
  this->open("2");
  Stream* const stream = this->device(0).compute;
  Stream* const both[] = {stream, this->device(1).compute};
  const std::int64_t before = this->closures.dropped.load();
  EXPECT_THROW(this->run(this->device(1).comm,
                         [&](const TaskContext&) {
                           const Task inner = this->closures.task([](auto&) {}, 0);
                           EXPECT_THROW(stream->enqueue(inner, {}), Error);
                           const Task group = this->closures.task([](auto&) {}, 0);
                           this->backend->enqueue_group(both, group, {});
                         })
                   .wait(),
               Error);
  EXPECT_EQ(this->closures.dropped.load() - before, 3);
}

TYPED_TEST_P(FailureConformance, WaitsWorkOnceTheThreadsHaveStopped) {
  this->open("2");
  const BufferRef x = this->number(1), y = this->number(1, 1);
  std::int32_t wanted = 1;
  Event last;
  for (std::int32_t i = 0; i < 100; ++i) {
    if (i == 50) this->backend->stop();
    last = this->mix(this->device(0).compute, this->at(x), i);
    wanted = this->mixed(wanted, i);
  }
  const Event bad = this->fail(this->device(1).compute, "after the threads");
  const Event after = this->mix(this->device(1).comm, this->at(y), 1, {last, bad});
  last.wait();
  EXPECT_EQ(this->value(x), wanted);
  EXPECT_THAT(this->what_of(after), ::testing::StartsWith("after the threads"));
  EXPECT_NO_THROW(this->backend->synchronize());
  EXPECT_EQ(this->value(y), 1);
}

REGISTER_TYPED_TEST_SUITE_P(FailureConformance, AnErrorPoisonsWhatWaitsForIt,
                            AnErrorDoesNotPoisonWhatIsOnlyOrderedAfterIt,
                            SynchronizeRethrowsAnUnseenErrorOnce,
                            AThousandFailuresLeaveNothingBehind, ForeignExceptionsAreRethrown,
                            ATaskMayNotEnqueueOrWait, ARefusedTaskIsDropped,
                            AFailingPartFailsTheTask, WaitsWorkOnceTheThreadsHaveStopped);

}  // namespace shmap::testing
