// The conformance suite of the device layer: what every backend has to do, whatever its executor.
// A backend instantiates it with a Traits type:
//
//   static std::unique_ptr<Backend> make(const std::string& devices, std::int64_t memory_limit);
//   static void mix(void* native, std::int32_t* x, std::int32_t v);   // enqueues *x = *x * 31 + v
//   static void add(void* native, std::int32_t* x, const std::int32_t* y);       // *x = *x * 31 +
//   *y static void copy(void* native, std::int32_t* x, const std::int32_t* y);       // *x = *y
//   static void upload(std::int32_t* x, std::int32_t v);              // blocking host write
//   static std::int32_t download(const std::int32_t* x);              // blocking host read
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/device/backend.h"
#include "shmap/error.h"

namespace shmap::testing {

constexpr std::int64_t kLarge = 10'000'000;  // a cost at which no executor runs a task at enqueue

// A task with a closure: counts its own drops, so that a leak or a second drop shows.
struct Closures {
  std::atomic<std::int64_t> alive{0}, peak{0}, dropped{0};

  template <class F>
  Task task(F f, std::int64_t cost_ns, int parts = 1) {
    struct Box {
      F f;
      Closures* owner;
    };
    const std::int64_t now = alive.fetch_add(1) + 1;
    for (std::int64_t p = peak; p < now && !peak.compare_exchange_weak(p, now);) {
    }
    Task task;
    task.name = "closure";
    task.cost_ns = cost_ns;
    task.parts = parts;
    task.args = new Box{std::move(f), this};
    task.run = [](void* box, const TaskContext& c) { static_cast<Box*>(box)->f(c); };
    task.drop = [](void* box) noexcept {
      Closures* owner = static_cast<Box*>(box)->owner;
      delete static_cast<Box*>(box);
      owner->dropped.fetch_add(1);
      owner->alive.fetch_sub(1);
    };
    return task;
  }
};

template <class Traits>
class DeviceConformance : public ::testing::Test {
 protected:
  void open(const std::string& devices, std::int64_t limit = -1) {
    backend = Traits::make(devices, limit);
    RecordProperty("repro", backend->repro());
  }
  void TearDown() override {
    if (backend == nullptr) return;
    EXPECT_NO_THROW(backend->synchronize());
    EXPECT_EQ(closures.alive.load(), 0) << backend->repro();
    backend.reset();
  }
  const LocalDevice& device(std::size_t i = 0) const { return backend->devices()[i]; }

  template <class F>
  Event run(Stream* stream, F f, std::vector<Event> waits = {}, std::int64_t cost_ns = kLarge,
            int parts = 1) {
    const Task task = closures.task(std::move(f), cost_ns, parts);
    std::lock_guard lock(backend->submit_mutex());
    return stream->enqueue(task, waits);
  }
  Event mix(Stream* stream, std::int32_t* x, std::int32_t v, std::vector<Event> waits = {},
            std::int64_t cost_ns = kLarge) {
    return run(
        stream, [=](const TaskContext& c) { Traits::mix(c.native, x, v); }, std::move(waits),
        cost_ns);
  }
  Event fail(Stream* stream, const char* text, std::vector<Event> waits = {},
             std::int64_t cost_ns = kLarge) {
    return run(
        stream, [=](const TaskContext&) { throw ValueError(text); }, std::move(waits), cost_ns);
  }
  BufferRef number(std::int32_t v, std::size_t d = 0) {
    BufferRef b = device(d).space->allocate(sizeof v);
    Traits::upload(at(b), v);
    return b;
  }
  static std::int32_t* at(const BufferRef& b) { return static_cast<std::int32_t*>(b->data()); }
  static std::int32_t value(const BufferRef& b) { return Traits::download(at(b)); }
  static std::int32_t mixed(std::int32_t x, std::int32_t v) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(x) * 31u +
                                     static_cast<std::uint32_t>(v));
  }
  static std::string what_of(const Event& e) {
    try {
      e.wait();
    } catch (const ValueError& error) {
      return error.what();
    }
    return "nothing thrown";
  }

  Closures closures;
  std::unique_ptr<Backend> backend;
};
TYPED_TEST_SUITE_P(DeviceConformance);

TYPED_TEST_P(DeviceConformance, DevicesHaveStreamsAndSpaces) {
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

TYPED_TEST_P(DeviceConformance, AStreamIsInOrder) {
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

TYPED_TEST_P(DeviceConformance, EventsOrderStreams) {
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

TYPED_TEST_P(DeviceConformance, ManyWaitsJoin) {
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

TYPED_TEST_P(DeviceConformance, AGroupTaskIsInAllItsStreams) {
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

TYPED_TEST_P(DeviceConformance, RecordCoversWhatWasEnqueued) {
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

TYPED_TEST_P(DeviceConformance, AnErrorPoisonsWhatWaitsForIt) {
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
    // What comes after a failure works as before.
    this->mix(this->device(1).compute, this->at(x), 9, {}, cost).wait();
    EXPECT_EQ(this->value(x), this->mixed(3, 9));
  }
  EXPECT_NO_THROW(this->backend->synchronize());  // seen already
}

TYPED_TEST_P(DeviceConformance, SynchronizeRethrowsAnUnseenErrorOnce) {
  this->open("2");
  const Event bad = this->fail(this->device(0).compute, "unseen");
  this->fail(this->device(1).compute, "a second one");
  EXPECT_THROW(this->backend->synchronize(), ValueError);
  EXPECT_NO_THROW(this->backend->synchronize());
  EXPECT_THAT(this->what_of(bad), ::testing::StartsWith("unseen"));  // the value stays poisoned
}

TYPED_TEST_P(DeviceConformance, AThousandFailuresLeaveNothingBehind) {
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

TYPED_TEST_P(DeviceConformance, ForeignExceptionsAreRethrown) {
  this->open("1");
  const Event e = this->run(this->device().compute, [](const TaskContext&) { throw 42; });
  EXPECT_THROW(e.wait(), int);
}

TYPED_TEST_P(DeviceConformance, ATaskMayNotEnqueueOrWait) {
  this->open("2");
  Backend* b = this->backend.get();
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
    EXPECT_FALSE(in_task());
  }
}

TYPED_TEST_P(DeviceConformance, EachPartRunsOnce) {
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

TYPED_TEST_P(DeviceConformance, AFailingPartFailsTheTask) {
  this->open("1");
  const Event e = this->run(
      this->device().compute,
      [](const TaskContext& c) {
        if (c.part == 3) throw ValueError("part three");
      },
      {}, kLarge, 8);
  EXPECT_THAT(this->what_of(e), ::testing::StartsWith("part three"));
}

TYPED_TEST_P(DeviceConformance, ParallelForRunsEachPartOnceAndRethrows) {
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

// ---------------------------------------------------------------------------------------- graphs

TYPED_TEST_P(DeviceConformance, CaptureRefusesWhatItCannotRecord) {
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

TYPED_TEST_P(DeviceConformance, AnAbandonedCaptureDropsItsTasks) {
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

TYPED_TEST_P(DeviceConformance, ReplayEqualsEager) {
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
          stream % 3 == 0   ? d.comm
          : stream % 3 == 1 ? d.compute
                            : d.compute2,
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

TYPED_TEST_P(DeviceConformance, ALaunchIsOrderedAmongEagerTasks) {
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

TYPED_TEST_P(DeviceConformance, AnErrorInAGraphFailsTheLaunchAndNotTheNext) {
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

TYPED_TEST_P(DeviceConformance, AnEmptyGraphIsDoneAtOnce) {
  this->open("1");
  CaptureScope capture(*this->backend);
  const Ref<Graph> graph = capture.end();
  std::lock_guard lock(this->backend->submit_mutex());
  EXPECT_EQ(graph->nodes(), 0);
  EXPECT_TRUE(graph->launch().done());
}

// ---------------------------------------------------------------------------------------- memory

TYPED_TEST_P(DeviceConformance, MemoryIsAlignedAndReused) {
  this->open("1");
  MemorySpace& space = *this->device().space;
  for (std::int64_t bytes : {0, 1, 63, 64, 65, 512, 513, 4096, 100'000, 3 << 20}) {
    void* first = nullptr;
    {
      const BufferRef b = space.allocate(bytes);
      first = b->data();
      ASSERT_NE(first, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
      EXPECT_EQ(b->bytes(), bytes);
      EXPECT_GE(b->capacity(), std::max<std::int64_t>(bytes, 1));
      EXPECT_LE(b->capacity(), std::max<std::int64_t>(64, bytes + bytes / 8 + 63));
      EXPECT_EQ(b.use_count(), 1);
      EXPECT_TRUE(b->quiet());
      EXPECT_EQ(space.bytes_in_use(), b->capacity());
    }
    EXPECT_EQ(space.bytes_in_use(), 0);
    EXPECT_EQ(space.allocate(bytes)->data(), first);
  }
  EXPECT_THROW(space.allocate(-1), ValueError);
  space.trim();
  EXPECT_EQ(space.cached_bytes(), 0);
}

TYPED_TEST_P(DeviceConformance, MemoryIsReusedOnlyAfterItsLastUse) {
  this->open("2");
  MemorySpace& space = *this->device().space;
  for (int round = 0; round < 200; ++round) {
    const BufferRef out = this->number(0);
    {
      const BufferRef old = space.allocate(256);  // written by one stream, read by another
      old->def() = this->mix(this->device(0).compute, this->at(old), 1);
      Event e;
      for (int k = 0; k < 3; ++k) {
        e = this->run(this->device(1).comm,
                      [to = this->at(out), from = this->at(old)](const TaskContext& c) {
                        TypeParam::add(c.native, to, from);
                      },
                      {old->def()});
        old->add_use(e);
      }
      out->def() = e;
      EXPECT_EQ(old.use_count(), 1);  // the pending tasks are no owners
    }
    const BufferRef fresh = space.allocate(256);
    TypeParam::upload(this->at(fresh), 1234);  // a host write: nothing pending may touch it
    this->backend->synchronize();
    ASSERT_EQ(this->value(fresh), 1234) << this->backend->repro();
  }
  space.reclaim();
  EXPECT_EQ(space.pending_bytes(), 0);
}

TYPED_TEST_P(DeviceConformance, ForeignMemoryIsReleasedAfterItsLastUse) {
  this->open("1");
  static std::atomic<int> released;
  released = 0;
  struct Foreign {
    BufferRef memory;  // let go from inside the deleter, of the same space
  };
  MemorySpace& space = *this->device().space;
  auto* foreign = new Foreign{space.allocate(64)};
  TypeParam::upload(this->at(foreign->memory), 0);
  BufferRef b = space.wrap(
      foreign->memory->data(), 64,
      [](void* p) noexcept {
        delete static_cast<Foreign*>(p);
        released.fetch_add(1);
      },
      foreign);
  Event e;
  for (int i = 0; i < 20; ++i) e = this->mix(this->device().compute, this->at(b), i);
  b->def() = e;
  b.reset();
  EXPECT_TRUE(released.load() == 0 || e.done());
  this->backend->synchronize();
  space.reclaim();
  EXPECT_EQ(released.load(), 1);
}

TYPED_TEST_P(DeviceConformance, OutOfMemoryNamesWhatMatters) {
  constexpr std::int64_t kMiB = 1 << 20;
  this->open("8", 8 * kMiB);
  MemorySpace& space = *this->device().space;
  const BufferRef a = space.allocate(4 * kMiB);
  BufferRef b = space.allocate(2 * kMiB);
  std::string text;
  try {
    space.allocate(3 * kMiB);
  } catch (const OutOfMemory& e) {
    text = e.what();
  }
  EXPECT_THAT(text, ::testing::HasSubstr("(id=0..7)"));
  EXPECT_THAT(text, ::testing::HasSubstr("3.0 MiB (3145728 bytes) asked for"));
  EXPECT_THAT(text, ::testing::HasSubstr("6.0 MiB (6291456 bytes) in use by 2 arrays"));
  EXPECT_THAT(text, ::testing::HasSubstr("limit 8.0 MiB"));
  EXPECT_THAT(text, ::testing::HasSubstr("largest free block 0 bytes"));
  EXPECT_THAT(text, ::testing::HasSubstr("largest live arrays: 4.0 MiB (4194304 bytes), 2.0 MiB"));
  EXPECT_THAT(text, ::testing::HasSubstr("SHMAP_MEMORY_LIMIT"));
  EXPECT_THROW(space.allocate(INT64_MAX), OutOfMemory);
  // Afterwards it goes on; what is cached makes room for other sizes.
  b.reset();
  EXPECT_EQ(space.allocate(4 * kMiB)->capacity(), 4 * kMiB);
  EXPECT_LE(space.peak_bytes(), 8 * kMiB);
}

TYPED_TEST_P(DeviceConformance, AllocationWaitsForPendingMemoryBeforeItFails) {
  constexpr std::int64_t kMiB = 1 << 20;
  this->open("2", 4 * kMiB);
  MemorySpace& space = *this->device().space;
  for (int i = 0; i < 100; ++i) {  // 300 MiB through 4
    const BufferRef b = space.allocate(3 * kMiB);
    b->def() = this->mix(this->device().compute, this->at(b), i);
  }
  EXPECT_LE(space.peak_bytes(), 4 * kMiB);
}

// ------------------------------------------------------------------------------------------ load

TYPED_TEST_P(DeviceConformance, AHundredThousandTasksRunInBoundedMemory) {
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

TYPED_TEST_P(DeviceConformance, TwoThreadsUseItAtOnce) {
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

REGISTER_TYPED_TEST_SUITE_P(DeviceConformance, DevicesHaveStreamsAndSpaces, AStreamIsInOrder,
                            EventsOrderStreams, ManyWaitsJoin, AGroupTaskIsInAllItsStreams,
                            RecordCoversWhatWasEnqueued, AnErrorPoisonsWhatWaitsForIt,
                            SynchronizeRethrowsAnUnseenErrorOnce,
                            AThousandFailuresLeaveNothingBehind, ForeignExceptionsAreRethrown,
                            ATaskMayNotEnqueueOrWait, EachPartRunsOnce, AFailingPartFailsTheTask,
                            ParallelForRunsEachPartOnceAndRethrows,
                            CaptureRefusesWhatItCannotRecord, AnAbandonedCaptureDropsItsTasks,
                            ReplayEqualsEager, ALaunchIsOrderedAmongEagerTasks,
                            AnErrorInAGraphFailsTheLaunchAndNotTheNext, AnEmptyGraphIsDoneAtOnce,
                            MemoryIsAlignedAndReused, MemoryIsReusedOnlyAfterItsLastUse,
                            ForeignMemoryIsReleasedAfterItsLastUse, OutOfMemoryNamesWhatMatters,
                            AllocationWaitsForPendingMemoryBeforeItFails,
                            AHundredThousandTasksRunInBoundedMemory, TwoThreadsUseItAtOnce);

}  // namespace shmap::testing
