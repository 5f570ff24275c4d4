// Streams are in order, events order streams, and a task of several parts runs each once.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/conformance/fixture.h"

namespace shmap::testing {

template <class Traits>
class StreamConformance : public DeviceFixture<Traits> {};
TYPED_TEST_SUITE_P(StreamConformance);

TYPED_TEST_P(StreamConformance, DevicesHaveStreamsAndSpaces) {
  for (const auto& [text, spaces] : {std::pair{"8", 1}, {"8/8", 8}, {"8/2", 2}}) {
    this->open(text);
    ASSERT_EQ(this->backend->devices().size(), 8u);
    ASSERT_EQ(this->backend->spaces().size(), static_cast<std::size_t>(spaces));
    for (int i = 0; i < 8; ++i) {
      const LocalDevice& d = this->device(static_cast<std::size_t>(i));
      EXPECT_EQ(d.index, i);
      EXPECT_EQ(d.device.id(), i);
      EXPECT_EQ(d.space, this->backend->spaces()[static_cast<std::size_t>(i * spaces / 8)]);
      EXPECT_EQ(d.compute->role(), StreamRole::compute);
      EXPECT_EQ(d.comm->role(), StreamRole::comm);
      EXPECT_NE(d.compute, d.comm);
      EXPECT_EQ(d.comm->device_index(), i);
      std::lock_guard lock(this->backend->submit_mutex());
      EXPECT_TRUE(d.compute->idle());
    }
    this->backend.reset();
  }
}

TYPED_TEST_P(StreamConformance, AStreamIsInOrder) {
  this->open("2");
  const BufferRef x = this->number(1);
  std::int32_t wanted = 1;
  Event last;
  for (std::int32_t i = 0; i < 200; ++i) {
    last = this->mix(this->device().compute, this->at(x), i, {}, i % 3 == 0 ? kLarge : 0);
    wanted = this->mixed(wanted, i);
  }
  last.wait();
  EXPECT_TRUE(last.done());
  EXPECT_FALSE(last.failed());
  EXPECT_EQ(this->value(x), wanted);
}

TYPED_TEST_P(StreamConformance, EventsOrderStreams) {
  this->open("4");
  const BufferRef x = this->number(7);
  std::int32_t wanted = 7;
  Event last;
  for (std::int32_t i = 0; i < 100; ++i) {
    const LocalDevice& d = this->device(static_cast<std::size_t>(i) % 4);
    Stream* stream = i % 3 == 0 ? d.comm : d.compute;
    last = this->mix(stream, this->at(x), i, {last}, i % 5 == 0 ? 0 : kLarge);
    wanted = this->mixed(wanted, i);
  }
  last.wait();
  EXPECT_EQ(this->value(x), wanted);
}

TYPED_TEST_P(StreamConformance, ManyWaitsJoin) {
  this->open("8");
  std::vector<BufferRef> parts;
  std::vector<Event> ready;
  std::int32_t wanted = 0;
  const BufferRef sum = this->number(0);
  for (std::int32_t i = 0; i < 8; ++i) {
    parts.push_back(this->number(0));
    ready.push_back(this->mix(this->device(static_cast<std::size_t>(i)).compute,
                              this->at(parts.back()), 100 + i));
    wanted = this->mixed(wanted, 100 + i);
  }
  std::vector<std::int32_t*> addresses;
  for (const BufferRef& p : parts) addresses.push_back(this->at(p));
  std::int32_t* out = this->at(sum);
  const Event done = this->run(
      this->device().comm,
      [=](const TaskContext& c) {
        for (const std::int32_t* a : addresses) TypeParam::add(c.native, out, a);
      },
      ready);
  done.wait();
  EXPECT_EQ(this->value(sum), wanted);
}

TYPED_TEST_P(StreamConformance, AGroupTaskIsInAllItsStreams) {
  this->open("8");
  std::vector<BufferRef> x;
  std::vector<Stream*> streams;
  std::vector<std::int32_t*> at;
  std::vector<std::int32_t> wanted;
  for (std::size_t i = 0; i < 8; ++i) {
    x.push_back(this->number(static_cast<std::int32_t>(i)));
    at.push_back(this->at(x[i]));
    streams.push_back(this->device(i).comm);
    wanted.push_back(static_cast<std::int32_t>(i));
  }
  Event last;
  for (std::int32_t round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < 8; ++i) {
      this->mix(streams[i], at[i], round);
      wanted[i] = this->mixed(wanted[i], round);
    }
    const Task task = this->closures.task(  // each takes in its neighbour
        [at](const TaskContext& c) {
          for (std::size_t i = 0; i < 8; ++i) TypeParam::add(c.native, at[i], at[(i + 1) % 8]);
        },
        kLarge);
    for (std::size_t i = 0; i < 8; ++i) wanted[i] = this->mixed(wanted[i], wanted[(i + 1) % 8]);
    std::lock_guard lock(this->backend->submit_mutex());
    last = this->backend->enqueue_group(streams, task, {});
  }
  last.wait();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(this->value(x[i]), wanted[i]) << i;
}

TYPED_TEST_P(StreamConformance, AGroupTaskWaitsForEventsAndFailsWithThem) {
  this->open("4");
  const BufferRef x = this->number(1), y = this->number(2);
  Stream* const streams[] = {this->device(2).comm, this->device(3).comm};
  const auto add = [&](std::vector<Event> waits) {
    const Task task = this->closures.task(
        [to = this->at(x), from = this->at(y), first = streams[0]](const TaskContext& c) {
          EXPECT_EQ(&c.stream, first);
          TypeParam::add(c.native, to, from);
        },
        kLarge);
    std::lock_guard lock(this->backend->submit_mutex());
    return this->backend->enqueue_group(streams, task, waits);
  };
  Event wrote;
  std::int32_t written = 2;
  for (std::int32_t i = 0; i < 50; ++i) {
    wrote = this->mix(this->device(0).compute, this->at(y), i);
    written = this->mixed(written, i);
  }
  add({wrote}).wait();
  const std::int32_t wanted = this->mixed(1, written);
  EXPECT_EQ(this->value(x), wanted);

  const Event bad = this->fail(this->device(1).compute, "before the group");
  const Event after = add({wrote, bad});
  EXPECT_EQ(this->what_of(after), this->what_of(bad));
  EXPECT_EQ(after.error(), bad.error());
  for (Stream* s : streams)
    this->mix(s, this->at(y), 1).wait();  // a group does not fail its streams
  EXPECT_EQ(this->value(x), wanted);
  std::lock_guard lock(this->backend->submit_mutex());
  EXPECT_THROW(this->backend->enqueue_group({}, this->closures.task([](auto&) {}, 0), {}),
               ValueError);
}

// A stream tells before a call whether the call will run at once. Launches rely on it, since they
// put arguments on the stack.
TYPED_TEST_P(StreamConformance, WhatIsSaidToRunAtOnceHasRunWhenTheCallReturns) {
  this->open("2");
  Stream* const stream = this->device(0).compute;
  const BufferRef x = this->number(1, 1);
  int ran = 0;
  const auto task = [&](std::int64_t cost_ns) {
    ran = 0;
    return this->closures.task([&](const TaskContext&) { ++ran; }, cost_ns, 3);
  };
  const auto has_run = [&] {
    EXPECT_EQ(ran, 3);
    EXPECT_EQ(this->closures.alive.load(), 0);
  };
  for (const std::int64_t cost : {std::int64_t{0}, std::int64_t{100}, kLarge}) {
    std::lock_guard lock(this->backend->submit_mutex());
    if (stream->runs_at_once(cost)) {
      EXPECT_FALSE(stream->enqueue(task(cost), {}).failed());
      has_run();
    }
    if (stream->runs_at_once(cost) || stream->overtakes(cost)) {
      EXPECT_FALSE(stream->run_at_once(task(cost)).failed());
      has_run();
    }
  }
  const Event pending = this->mix(this->device(1).compute, this->at(x), 1);
  {
    std::lock_guard lock(this->backend->submit_mutex());
    if (stream->calls_at_enqueue()) {
      EXPECT_FALSE(stream->enqueue(task(kLarge), std::vector<Event>{pending}).failed());
      has_run();
    }
  }
  pending.wait();
  const Task wrong =
      this->closures.task([](const TaskContext&) { throw ValueError("at once"); }, 0);
  Event failed;
  {
    std::lock_guard lock(this->backend->submit_mutex());
    failed = stream->runs_at_once(0) ? stream->run_at_once(wrong) : stream->enqueue(wrong, {});
  }
  EXPECT_THAT(this->what_of(failed), ::testing::StartsWith("at once"));
  // A graph keeps the args of its tasks.
  CaptureScope capture(*this->backend);
  std::lock_guard lock(this->backend->submit_mutex());
  EXPECT_FALSE(stream->runs_at_once(0));
  EXPECT_FALSE(stream->overtakes(0));
  EXPECT_FALSE(stream->calls_at_enqueue());
}

// If the backend gives no TaskEnd, the task ends with its run.
TYPED_TEST_P(StreamConformance, ATaskMayEndOnAnotherThread) {
  this->open("2");
  enum { begun = 1, ends = 2 };
  std::atomic<int> state{0};
  std::atomic<TaskEnd*> end{nullptr};
  for (const bool fails : {false, true}) {
    const BufferRef x = this->number(1);
    state = 0;
    std::thread other([&] {
      while (state.load() == 0) std::this_thread::yield();
      if (state.load() == ends) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      end.load()->end(fails ? std::make_exception_ptr(ValueError("ended late")) : nullptr);
    });
    Task task = this->closures.task(
        [&end, &state, fails](const TaskContext& c) {
          end.store(c.end);
          const bool goes_on = c.end != nullptr;
          state.store(goes_on ? begun : ends);  // the args may be gone from here on
          if (!goes_on && fails) throw ValueError("ended late");
        },
        kLarge);
    task.later = true;
    Event e;
    {
      std::lock_guard lock(this->backend->submit_mutex());
      e = this->device(0).compute->enqueue(task, {});
    }
    const Event after = this->mix(this->device(1).compute, this->at(x), 5, {e});
    if (fails) {
      EXPECT_THAT(this->what_of(after), ::testing::StartsWith("ended late"));
      EXPECT_EQ(this->value(x), 1);
    } else {
      after.wait();
      EXPECT_EQ(this->value(x), this->mixed(1, 5));
    }
    EXPECT_TRUE(e.done());
    EXPECT_EQ(e.failed(), fails);
    other.join();
  }
}

TYPED_TEST_P(StreamConformance, RecordCoversWhatWasEnqueued) {
  this->open("1");
  const BufferRef x = this->number(1);
  for (int i = 0; i < 5; ++i) this->mix(this->device().compute, this->at(x), 1);
  const Event failed = this->fail(this->device().compute, "not the marker's");
  Event marker;
  {
    std::lock_guard lock(this->backend->submit_mutex());
    marker = this->device().compute->record();
  }
  EXPECT_NO_THROW(marker.wait());
  EXPECT_TRUE(failed.done());
  EXPECT_THAT(this->what_of(failed), ::testing::StartsWith("not the marker's"));
  std::lock_guard lock(this->backend->submit_mutex());
  EXPECT_TRUE(this->device().compute->idle());
}

TYPED_TEST_P(StreamConformance, EachPartRunsOnce) {
  this->open("2");
  for (int parts : {1, 2, 7, 64}) {
    for (std::int64_t cost : {std::int64_t{0}, kLarge}) {
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(parts));
      const Event e = this->run(
          this->device().compute,
          [&](const TaskContext& c) {
            if (c.parts == parts) hits[static_cast<std::size_t>(c.part)].fetch_add(1);
          },
          {}, cost, parts);
      e.wait();
      for (const auto& h : hits) EXPECT_EQ(h.load(), 1);
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(StreamConformance, DevicesHaveStreamsAndSpaces, AStreamIsInOrder,
                            EventsOrderStreams, ManyWaitsJoin, AGroupTaskIsInAllItsStreams,
                            AGroupTaskWaitsForEventsAndFailsWithThem,
                            WhatIsSaidToRunAtOnceHasRunWhenTheCallReturns,
                            ATaskMayEndOnAnotherThread, RecordCoversWhatWasEnqueued,
                            EachPartRunsOnce);

}  // namespace shmap::testing
