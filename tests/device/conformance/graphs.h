// Capture: what it records and refuses. A launch has the same effects as running at once.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/device/conformance/fixture.h"

namespace shmap::testing {

template <class Traits>
class GraphConformance : public DeviceFixture<Traits> {};
TYPED_TEST_SUITE_P(GraphConformance);

TYPED_TEST_P(GraphConformance, CaptureRefusesWhatItCannotRecord) {
  this->open("2");
  const BufferRef x = this->number(0);
  {
    CaptureScope capture(*this->backend);
    EXPECT_TRUE(capturing());
    EXPECT_THROW(this->device().space->allocate(64), Error);
    EXPECT_THROW(this->backend->synchronize(), Error);
    EXPECT_THROW(this->backend->begin_capture(), Error);
    EXPECT_THROW(Event().wait(), Error);
    const Event e = this->mix(this->device().compute, this->at(x), 1, {}, 0);
    EXPECT_FALSE(e.done());
    EXPECT_THROW(e.wait(), Error);
    Event other;
    std::thread([&] {  // captures nothing, and is not disturbed
      EXPECT_FALSE(capturing());
      const BufferRef y = this->number(5);
      this->mix(this->device().compute, this->at(y), 1).wait();
      EXPECT_EQ(this->value(y), this->mixed(5, 1));
    })
        .join();
    capture.end();
    EXPECT_TRUE(e.done());  // nothing waits for it for ever
  }
  EXPECT_FALSE(capturing());
  EXPECT_EQ(this->value(x), 0);  // captured, never launched
  EXPECT_THROW(this->backend->end_capture(), Error);
  EXPECT_EQ(this->closures.alive.load(), 0);
}

TYPED_TEST_P(GraphConformance, CaptureRefusesToWaitForWhatIsPending) {
  this->open("2");
  const BufferRef x = this->number(0);
  int pending = 0, refused = 0;
  for (int round = 0; round < 20; ++round) {
    Event last;
    for (int i = 0; i < 50; ++i) last = this->mix(this->device(0).compute, this->at(x), i);
    CaptureScope capture(*this->backend);
    pending += !last.done();
    try {
      this->mix(this->device(1).compute, this->at(x), 1, {last});
      EXPECT_TRUE(last.done());
    } catch (const Error& e) {
      ++refused;
      EXPECT_THAT(e.what(), ::testing::HasSubstr("enqueued before the capture and is not done"));
    }
    capture.end();
    last.wait();
  }
  // Some may end between the two looks, not most.
  if (pending >= 10) {
    EXPECT_GT(refused, 0) << this->backend->repro();
  }
}

// A task that another thread captured runs when its graph is launched, which may never happen:
// neither another capture nor an eager task waits for it.
TYPED_TEST_P(GraphConformance, NothingWaitsForWhatAnotherThreadCaptures) {
  this->open("2");
  const BufferRef x = this->number(0), y = this->number(0, 1);
  Event theirs;
  {
    CaptureScope capture(*this->backend);
    theirs = this->mix(this->device(0).compute, this->at(x), 1);
    std::thread([&] {
      Stream* const stream = this->device(1).compute;
      EXPECT_THROW(this->mix(stream, this->at(y), 2, {theirs}), Error);
      CaptureScope own(*this->backend);
      const Event mine = this->mix(stream, this->at(y), 3);
      EXPECT_THROW(this->mix(stream, this->at(y), 4, {mine, theirs}), Error);
      this->mix(stream, this->at(y), 5, {mine});
      EXPECT_EQ(this->backend->captured(), 2);
      EXPECT_EQ(own.end()->nodes(), 2);
    }).join();
    EXPECT_EQ(capture.end()->nodes(), 1);
  }
  EXPECT_TRUE(theirs.done());
  this->mix(this->device(1).compute, this->at(y), 2, {theirs}).wait();  // which is over now
  EXPECT_EQ(this->value(y), this->mixed(0, 2));
  EXPECT_EQ(this->closures.alive.load(), 0);
}

TYPED_TEST_P(GraphConformance, AnAbandonedCaptureDropsItsTasks) {
  this->open("1");
  const BufferRef x = this->number(0);
  {
    CaptureScope capture(*this->backend);
    this->mix(this->device().compute, this->at(x), 1);
    this->mix(this->device().comm, this->at(x), 2);
  }
  EXPECT_FALSE(capturing());
  EXPECT_EQ(this->closures.dropped.load(), 2);
  EXPECT_NO_THROW(this->number(1));
}

// A random program over streams and events, run by `step`; the same for the same seed.
template <class Step>
void random_program(std::uint32_t seed, int tasks, std::size_t cells, Step step) {
  std::mt19937 random(seed);
  std::vector<Event> wrote(cells);
  std::vector<std::vector<Event>> read(cells);
  for (int i = 0; i < tasks; ++i) {
    const std::size_t to = random() % cells, from = random() % cells, stream = random();
    std::vector<Event> waits = read[to];
    waits.push_back(wrote[to]);
    waits.push_back(wrote[from]);
    const std::int64_t cost = random() % 2 == 0 ? 0 : kLarge;
    const Event e = step(stream, to, from, waits, cost);
    wrote[to] = e;
    read[to].clear();
    read[from].push_back(e);
  }
}

TYPED_TEST_P(GraphConformance, ReplayEqualsEager) {
  this->open("4");
  constexpr std::size_t kCells = 6;
  for (std::uint32_t seed = 0; seed < 25; ++seed) {
    std::vector<BufferRef> eager, replayed;
    std::vector<std::int32_t> wanted(kCells);
    for (std::size_t i = 0; i < kCells; ++i) {
      wanted[i] = static_cast<std::int32_t>(i + 1);
      eager.push_back(this->number(wanted[i]));
      replayed.push_back(this->number(wanted[i]));
    }
    auto step = [&](std::vector<BufferRef>& cells, std::size_t stream, std::size_t to,
                    std::size_t from, const std::vector<Event>& waits, std::int64_t cost) {
      const LocalDevice& d = this->device(stream % 4);
      std::int32_t *x = this->at(cells[to]), *y = this->at(cells[from]);
      return this->run(
          stream % 3 == 0 ? d.comm : d.compute,
          [=](const TaskContext& c) { TypeParam::add(c.native, x, y); }, waits, cost);
    };
    CaptureScope capture(*this->backend);
    random_program(seed, 60, kCells, [&](auto stream, auto to, auto from, auto& waits, auto cost) {
      return step(replayed, stream, to, from, waits, cost);
    });
    Ref<Graph> graph = capture.end();
    EXPECT_EQ(graph->nodes(), 60);
    EXPECT_GT(graph->edges(), 0);
    constexpr int kRounds = 4;
    for (int round = 0; round < kRounds; ++round) {
      random_program(seed, 60, kCells,
                     [&](auto stream, auto to, auto from, auto& waits, auto cost) {
                       return step(eager, stream, to, from, waits, cost);
                     });
      random_program(seed, 60, kCells, [&](auto, auto to, auto from, auto&, auto) {
        wanted[to] = this->mixed(wanted[to], wanted[from]);
        return Event();
      });
      this->backend->synchronize();
    }
    Event last;
    for (int round = 0; round < kRounds; ++round) {  // none waits for the one before
      std::lock_guard lock(this->backend->submit_mutex());
      last = graph->launch();
    }
    graph.reset();  // the launches keep it
    last.wait();
    this->backend->synchronize();
    for (std::size_t i = 0; i < kCells; ++i) {
      ASSERT_EQ(this->value(eager[i]), wanted[i]) << "seed " << seed << this->backend->repro();
      ASSERT_EQ(this->value(replayed[i]), wanted[i]) << "seed " << seed << this->backend->repro();
    }
  }
}

TYPED_TEST_P(GraphConformance, ALaunchIsOrderedAmongEagerTasks) {
  this->open("2");
  const BufferRef x = this->number(1), y = this->number(1);
  Ref<Graph> graph;
  {
    CaptureScope capture(*this->backend);
    const Event e = this->mix(this->device(0).compute, this->at(x), 5);
    this->run(this->device(1).comm,
              [to = this->at(y), from = this->at(x)](const TaskContext& c) {
                TypeParam::add(c.native, to, from);
              },
              {e});
    graph = capture.end();
  }
  std::int32_t wx = 1, wy = 1;
  for (int i = 0; i < 50; ++i) {
    this->mix(this->device(0).compute, this->at(x), i);
    Event e;
    {
      std::lock_guard lock(this->backend->submit_mutex());
      e = graph->launch();
    }
    this->mix(this->device(1).comm, this->at(y), i);
    wx = this->mixed(this->mixed(wx, i), 5);
    wy = this->mixed(this->mixed(wy, wx), i);
  }
  this->backend->synchronize();
  EXPECT_EQ(this->value(x), wx);
  EXPECT_EQ(this->value(y), wy);
}

TYPED_TEST_P(GraphConformance, AnErrorInAGraphFailsTheLaunchAndNotTheNext) {
  if constexpr (requires { TypeParam::kRunsTasksWhenCaptured; }) {
    GTEST_SKIP() << TypeParam::kRunsTasksWhenCaptured;
  }
  this->open("2");
  const BufferRef x = this->number(1);
  auto broken = std::make_shared<std::atomic<bool>>(true);
  for (std::int64_t cost : {std::int64_t{0}, kLarge}) {
    *broken = true;
    TypeParam::upload(this->at(x), 1);
    CaptureScope capture(*this->backend);
    const Event e = this->run(
        this->device(0).compute,
        [broken](const TaskContext&) {
          if (*broken) throw ValueError("in the graph");
        },
        {}, cost);
    this->mix(this->device(1).compute, this->at(x), 7, {e}, cost);
    const Ref<Graph> graph = capture.end();
    auto launch = [&](std::vector<Event> waits = {}) {
      std::lock_guard lock(this->backend->submit_mutex());
      return graph->launch(waits);
    };
    const Event first = launch();
    EXPECT_THAT(this->what_of(first), ::testing::StartsWith("in the graph"));
    EXPECT_EQ(this->value(x), 1);
    *broken = false;
    EXPECT_TRUE(launch({first}).failed() || this->what_of(launch({first})) != "nothing thrown");
    EXPECT_EQ(this->value(x), 1);  // poisoned by what it waited for
    launch().wait();
    EXPECT_EQ(this->value(x), this->mixed(1, 7));
  }
}

TYPED_TEST_P(GraphConformance, ALaunchWaitsForEventsAndFailsWithThoseOfTheFirstList) {
  this->open("2");
  const BufferRef x = this->number(1), y = this->number(1, 1);
  Ref<Graph> graph;
  {
    CaptureScope capture(*this->backend);
    this->run(this->device(0).compute,
              [to = this->at(x), from = this->at(y)](const TaskContext& c) {
                TypeParam::add(c.native, to, from);
              });
    graph = capture.end();
  }
  const auto launch = [&](std::vector<Event> waits, std::vector<Event> after) {
    std::lock_guard lock(this->backend->submit_mutex());
    return graph->launch(waits, after);
  };
  std::int32_t wx = 1, wy = 1;
  for (const bool first : {true, false}) {
    Event wrote;
    for (std::int32_t i = 0; i < 50; ++i) {
      wrote = this->mix(this->device(1).compute, this->at(y), i);
      wy = this->mixed(wy, i);
    }
    (first ? launch({wrote}, {}) : launch({}, {wrote})).wait();
    wx = this->mixed(wx, wy);
    EXPECT_EQ(this->value(x), wx) << this->backend->repro();
  }
  const Event bad = this->fail(this->device(1).compute, "before the graph");
  launch({}, {bad}).wait();
  wx = this->mixed(wx, wy);
  EXPECT_EQ(this->value(x), wx);
  const Event failed = launch({bad}, {});
  EXPECT_EQ(this->what_of(failed), this->what_of(bad));
  EXPECT_EQ(failed.error(), bad.error());
  EXPECT_EQ(this->value(x), wx);
  launch({}, {}).wait();
  wx = this->mixed(wx, wy);
  EXPECT_EQ(this->value(x), wx);
  // A launch that fails ends no sooner than what it waits for, and than the launch before it.
  for (const bool first : {true, false}) {
    const Event before = launch({}, {});
    wx = this->mixed(wx, wy);
    Event wrote;
    for (std::int32_t i = 0; i < 50; ++i) {
      wrote = this->mix(this->device(1).compute, this->at(y), i, {before});
      wy = this->mixed(wy, i);
    }
    const Event last = first ? launch({bad, wrote}, {}) : launch({bad}, {wrote});
    EXPECT_EQ(this->what_of(last), this->what_of(bad));
    EXPECT_TRUE(wrote.done() && before.done());
    EXPECT_EQ(this->value(y), wy);
    EXPECT_EQ(this->value(x), wx);
  }
}

TYPED_TEST_P(GraphConformance, AGraphListsItsTasks) {
  this->open("2");
  const BufferRef x = this->number(1), y = this->number(1, 1);
  const LocalDevice &first = this->device(0), &second = this->device(1);
  CaptureScope capture(*this->backend);
  this->mix(first.compute, this->at(x), 1, {}, 100);
  const Event e = this->mix(second.comm, this->at(y), 2, {}, 200);
  Event both;
  {
    Stream* const streams[] = {first.comm, second.comm};
    const Task task = this->closures.task(
        [at = this->at(x)](const TaskContext& c) { TypeParam::mix(c.native, at, 3); }, 300);
    std::lock_guard lock(this->backend->submit_mutex());
    both = this->backend->enqueue_group(streams, task, {});
    EXPECT_EQ(first.comm->record(), both);
    EXPECT_EQ(second.compute->record(), Event());
  }
  this->mix(first.compute, this->at(x), 4, {both, e}, 400);
  EXPECT_EQ(this->backend->captured(), 4);
  const Ref<Graph> graph = capture.end();
  EXPECT_EQ(this->backend->captured(), 0);
  EXPECT_EQ(graph->nodes(), 4);
  EXPECT_EQ(graph->cost_ns(), 1000);
  const std::vector<GraphTask> tasks = graph->tasks();
  ASSERT_EQ(tasks.size(), 4u);
  using ::testing::ElementsAre;
  EXPECT_STREQ(tasks[0].name, "closure");
  EXPECT_THAT(tasks[0].streams, ElementsAre(first.compute));
  EXPECT_THAT(tasks[1].streams, ElementsAre(second.comm));
  EXPECT_THAT(tasks[2].streams, ElementsAre(first.comm, second.comm));
  EXPECT_THAT(tasks[3].streams, ElementsAre(first.compute));
  EXPECT_THAT(tasks[0].after, ElementsAre());
  EXPECT_THAT(tasks[1].after, ElementsAre());
  EXPECT_THAT(tasks[2].after, ElementsAre(1));
  // Not after task 1, for which task 2 waits in their stream.
  EXPECT_THAT(tasks[3].after, ElementsAre(0, 2));
  EXPECT_EQ(graph->edges(), 3);
}

TYPED_TEST_P(GraphConformance, ATaskGetsTheTicketOfItsLaunch) {
  if constexpr (requires { TypeParam::kRunsTasksWhenCaptured; }) {
    GTEST_SKIP() << TypeParam::kRunsTasksWhenCaptured;
  }
  this->open("1");
  for (const std::int64_t cost : {std::int64_t{0}, kLarge}) {
    std::atomic<std::uint64_t> seen{0};
    CaptureScope capture(*this->backend);
    this->run(
        this->device().compute, [&](const TaskContext& c) { seen = c.ticket; }, {}, cost);
    const Ref<Graph> graph = capture.end();
    for (const std::uint64_t ticket : {UINT64_MAX, std::uint64_t{3}}) {
      Event e;
      {
        std::lock_guard lock(this->backend->submit_mutex());
        e = graph->launch({}, {}, ticket);
      }
      e.wait();
      EXPECT_EQ(seen.load(), ticket);
    }
  }
}

TYPED_TEST_P(GraphConformance, NoGraphIsLaunchedInACapture) {
  this->open("1");
  const BufferRef x = this->number(1);
  Ref<Graph> graph;
  {
    CaptureScope capture(*this->backend);
    this->mix(this->device().compute, this->at(x), 1);
    graph = capture.end();
  }
  {
    CaptureScope capture(*this->backend);
    std::lock_guard lock(this->backend->submit_mutex());
    EXPECT_THROW(graph->launch(), Error);
  }
  EXPECT_EQ(this->value(x), 1);
}

TYPED_TEST_P(GraphConformance, AThreadWithoutACaptureAbandonsNone) {
  this->open("1");
  const BufferRef x = this->number(1);
  this->backend->abort_capture();
  CaptureScope capture(*this->backend);
  this->mix(this->device().compute, this->at(x), 1);
  std::thread([&] { this->backend->abort_capture(); }).join();
  EXPECT_TRUE(capturing());
  this->mix(this->device().compute, this->at(x), 2);
  EXPECT_EQ(capture.end()->nodes(), 2);
  this->backend->abort_capture();
  EXPECT_FALSE(capturing());
}

TYPED_TEST_P(GraphConformance, AnEmptyGraphIsDoneAtOnce) {
  this->open("1");
  CaptureScope capture(*this->backend);
  const Ref<Graph> graph = capture.end();
  std::lock_guard lock(this->backend->submit_mutex());
  EXPECT_EQ(graph->nodes(), 0);
  EXPECT_TRUE(graph->launch().done());
}

REGISTER_TYPED_TEST_SUITE_P(
    GraphConformance, CaptureRefusesWhatItCannotRecord, CaptureRefusesToWaitForWhatIsPending,
    NothingWaitsForWhatAnotherThreadCaptures, AnAbandonedCaptureDropsItsTasks, ReplayEqualsEager,
    ALaunchIsOrderedAmongEagerTasks, ALaunchWaitsForEventsAndFailsWithThoseOfTheFirstList,
    AnErrorInAGraphFailsTheLaunchAndNotTheNext, AGraphListsItsTasks, ATaskGetsTheTicketOfItsLaunch,
    NoGraphIsLaunchedInACapture, AThreadWithoutACaptureAbandonsNone, AnEmptyGraphIsDoneAtOnce);

}  // namespace shmap::testing
