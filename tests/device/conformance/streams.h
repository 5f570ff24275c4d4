// Streams are in order, events order streams, and a task of several parts runs each once.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
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
      EXPECT_EQ(d.compute2->role(), StreamRole::compute);
      EXPECT_EQ(d.comm->role(), StreamRole::comm);
      EXPECT_NE(d.compute, d.compute2);
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
    Stream* stream = i % 3 == 0 ? d.comm : i % 3 == 1 ? d.compute : d.compute2;
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

TYPED_TEST_P(StreamConformance, ParallelForRunsEachPartOnceAndRethrows) {
  this->open("2");
  for (int parts : {0, 1, 3, 100}) {
    std::vector<std::atomic<int>> hits(static_cast<std::size_t>(parts));
    parallel_for(*this->backend, parts,
                 [&](int part) { hits[static_cast<std::size_t>(part)].fetch_add(1); });
    for (const auto& h : hits) EXPECT_EQ(h.load(), 1);
  }
  EXPECT_THROW(parallel_for(*this->backend, 20,
                            [](int part) {
                              if (part == 11) throw ValueError("eleven");
                            }),
               ValueError);
  EXPECT_FALSE(in_task());
}

REGISTER_TYPED_TEST_SUITE_P(StreamConformance, DevicesHaveStreamsAndSpaces, AStreamIsInOrder,
                            EventsOrderStreams, ManyWaitsJoin, AGroupTaskIsInAllItsStreams,
                            RecordCoversWhatWasEnqueued, EachPartRunsOnce,
                            ParallelForRunsEachPartOnceAndRethrows);

}  // namespace shmap::testing
