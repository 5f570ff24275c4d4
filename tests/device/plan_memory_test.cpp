// Memory of captured programs: rehearsed, and placed.
#include "core/device/plan_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/runtime/launch.h"
#include "shmap/counters.h"
#include "shmap/error.h"
#include "tests/runtime/planning.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using test::kLarge;
using test::make_backend;
using test::outputs_of;
using test::slabs_of;
using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr std::int64_t kNever = Allocation::kNever;

class PlanMemory : public ::testing::Test {
 protected:
  PlanMemory() : backend(make_backend("2/2", cpu::Mode::async)) {}
  MemorySpace& space(std::size_t i = 0) const { return *backend->devices()[i].space; }
  // Runs body under a rehearsal; what it returns is alive at the end.
  template <class Body>
  std::vector<Allocation> rehearse(Body body) {
    MemoryRehearsal rehearsal;
    CaptureScope capture(*backend);
    [[maybe_unused]] const auto alive = body();
    return rehearsal.finish();
  }
  // Runs like a rehearsal, in place; the graph is dropped.
  template <class Body>
  void place(const MemoryLayout& layout, Body body) {
    const auto slabs = slabs_of(layout), outputs = outputs_of(layout);
    PlacedMemory memory(layout, slabs, outputs);
    CaptureScope capture(*backend);
    [[maybe_unused]] const auto alive = body();
    memory.finish();
    capture.end();
  }
  // Enqueues a task that does nothing.
  void touch(Stream* stream, std::vector<Buffer*> reads, std::vector<Buffer*> writes) {
    std::lock_guard lock(backend->submit_mutex());
    launch({stream, "touch", kLarge}, reads, writes, [](int, int, void*) {});
  }

  std::unique_ptr<Backend> backend;
};

// -------------------------------------------------------------------------------------- rehearsal

TEST_F(PlanMemory, ARehearsalRecordsLifetimes) {
  const std::vector<Allocation> tape = rehearse([&] {
    BufferRef a = space(0).allocate(100);          // 0
    BufferRef b = space(1).allocate(7);            // 1
    a.reset();                                     // before 2
    space(0).allocate(0);                          // 2, gone at once
    BufferRef in_place = space(0).allocate(40);    // 3
    const BufferRef result = std::move(in_place);  // written in place: one buffer
    space(1).allocate(1);                          // 4
    return std::vector<BufferRef>{result, std::move(b)};
  });
  ASSERT_THAT(tape, SizeIs(5));
  const auto expect = [&](std::size_t k, MemorySpace& where, std::int64_t bytes,
                          std::int64_t died) {
    EXPECT_EQ(tape[k].space, &where) << k;
    EXPECT_EQ(tape[k].bytes, bytes) << k;
    EXPECT_EQ(tape[k].born, static_cast<std::int64_t>(k));
    EXPECT_EQ(tape[k].died, died) << k;
  };
  expect(0, space(0), 100, 2);
  expect(1, space(1), 7, kNever);
  expect(2, space(0), 0, 3);
  expect(3, space(0), 40, kNever);
  expect(4, space(1), 1, 5);
}

TEST_F(PlanMemory, ADeathIsSeenAtOnceAlthoughItsTaskIsPending) {
  const std::vector<Allocation> tape = rehearse([&] {
    BufferRef a = space().allocate(100);
    touch(backend->devices()[0].compute, {}, {a.get()});
    BufferRef b = space().allocate(100);
    touch(backend->devices()[0].comm, {a.get()}, {b.get()});
    EXPECT_FALSE(a->quiet());
    a.reset();
    return space().allocate(100);
  });
  ASSERT_THAT(tape, SizeIs(3));
  EXPECT_EQ(tape[0].died, 2);
  EXPECT_EQ(tape[1].died, 3);
  EXPECT_TRUE(tape[2].escapes());
}

TEST_F(PlanMemory, RehearsedAddressesAreTheirOwn) {
  std::vector<std::pair<std::uintptr_t, std::int64_t>> ranges;
  rehearse([&] {
    std::vector<BufferRef> alive;
    for (std::int64_t bytes : {0, 1, 64, 65, 1 << 20, 0}) {
      BufferRef b = space().allocate(bytes);
      EXPECT_EQ(b->bytes(), bytes);
      EXPECT_EQ(b.use_count(), 1);
      EXPECT_TRUE(b->untouched());
      ranges.emplace_back(reinterpret_cast<std::uintptr_t>(b->data()), bytes);
      alive.push_back(std::move(b));
    }
    return alive;
  });
  std::uintptr_t end = 1;
  for (const auto& [address, bytes] : ranges) {
    EXPECT_EQ(address % 64, 0u);
    EXPECT_GE(address, end);
    end = address + static_cast<std::uintptr_t>(std::max<std::int64_t>(bytes, 1));
  }
}

TEST_F(PlanMemory, PlannedBuffersCountNowhere) {
  const BufferRef ordinary = space().allocate(64);
  const std::int64_t peak = space().peak_bytes();
  reset_counters();
  const auto program = [&] {
    const std::int64_t before = space().bytes_in_use();
    BufferRef a = space().allocate(1 << 20);
    touch(backend->devices()[0].compute, {}, {a.get()});
    touch(backend->devices()[0].compute, {proxy_of(ordinary).get()}, {a.get()});
    EXPECT_EQ(space().bytes_in_use(), before);
    EXPECT_EQ(space().pending_bytes(), 0);
    return space().allocate(1);
  };
  const MemoryLayout layout = plan_layout(rehearse(program));
  EXPECT_EQ(counters().allocations, 0);
  EXPECT_EQ(space().peak_bytes(), peak);
  const auto slabs = slabs_of(layout), outputs = outputs_of(layout);
  EXPECT_EQ(counters().allocations, 2);
  const std::int64_t with_slab = space().bytes_in_use();
  {
    PlacedMemory memory(layout, slabs, outputs);
    CaptureScope capture(*backend);
    program();
    memory.finish();
    EXPECT_EQ(space().bytes_in_use(), with_slab);
  }
  EXPECT_EQ(counters().allocations, 2);
  EXPECT_EQ(space().pending_bytes(), 0);
}

TEST_F(PlanMemory, OutsideOfACaptureMemoryIsOrdinary) {
  MemoryRehearsal rehearsal;
  EXPECT_EQ(tape_index(*space().allocate(64)), -1);
  for (int segment = 0; segment < 2; ++segment) {  // one tape of all captures
    CaptureScope capture(*backend);
    EXPECT_EQ(tape_index(*space().allocate(64)), segment);
  }
  EXPECT_THAT(rehearsal.finish(), SizeIs(2));
}

TEST_F(PlanMemory, ErrorsOfARehearsal) {
  BufferRef late;
  {
    MemoryRehearsal rehearsal;
    CaptureScope capture(*backend);
    EXPECT_THROW(space().allocate(-1), ValueError);
    EXPECT_THROW(space().allocate((std::int64_t{1} << 55) + 1), OutOfMemory);
    std::vector<BufferRef> many;
    EXPECT_THROW(
        for (int i = 0; i < 100; ++i) many.push_back(space().allocate(std::int64_t{1} << 55)),
        OutOfMemory);
    late = space().allocate(1);
    rehearsal.finish();
    expect_error<Error>([&] { space().allocate(1); }, {"after the rehearsal ended"});
    EXPECT_THROW(rehearsal.finish(), Error);
  }
  late.reset();  // after all that it belonged to
  CaptureScope capture(*backend);
  expect_error<Error>([&] { space().allocate(1); }, {"while this thread captures a graph"});
}

// ----------------------------------------------------------------------------------------- placed

TEST_F(PlanMemory, PlacesAreTheLayouts) {
  const auto program = [&](std::vector<void*>* data) {
    std::vector<BufferRef> alive;
    const auto make = [&](std::size_t s, std::int64_t bytes) {
      BufferRef b = space(s).allocate(bytes);
      EXPECT_EQ(b->bytes(), bytes);
      EXPECT_EQ(&b->space(), &space(s));
      EXPECT_EQ(b.use_count(), 1);
      if (data != nullptr) {
        EXPECT_EQ(tape_index(*b), static_cast<std::int64_t>(data->size()));
        data->push_back(b->data());
      }
      return b;
    };
    BufferRef a = make(0, 1000), b = make(1, 10);
    alive.push_back(make(0, 300));
    a.reset();
    make(0, 500);
    alive.push_back(make(1, 20));
    return alive;
  };
  const MemoryLayout layout = plan_layout(rehearse([&] { return program(nullptr); }));
  ASSERT_THAT(layout.slabs, SizeIs(2));
  EXPECT_THAT(layout.escaping(), ElementsAre(2, 4));
  const auto slabs = slabs_of(layout);
  for (int executable = 0; executable < 2; ++executable) {  // two output sets, one slab
    const auto outputs = outputs_of(layout);
    std::vector<void*> data;
    std::vector<BufferRef> results;
    {
      PlacedMemory memory(layout, slabs, outputs);
      CaptureScope capture(*backend);
      results = program(&data);
      memory.finish();
    }
    EXPECT_THAT(data, ElementsAre(slabs[0]->data(), slabs[1]->data(), outputs[0]->data(),
                                  slabs[0]->data(), outputs[1]->data()));
    EXPECT_EQ(behind(*results[0]), outputs[0]);
    EXPECT_EQ(behind(*results[1]), outputs[1]);
    EXPECT_EQ(outputs[0].use_count(), 2);
    results.clear();
    EXPECT_EQ(outputs[0].use_count(), 1);
  }
}

TEST_F(PlanMemory, AnotherProgramThanTheRehearsedOneThrows) {
  const MemoryLayout layout = plan_layout(rehearse([&] {
    BufferRef a = space().allocate(100);
    a.reset();
    a = space().allocate(100);
    return space().allocate(8);
  }));
  const auto expect = [&](auto body, const char* text) {
    expect_error<Error>([&] { place(layout, body); }, {text});
  };
  expect(
      [&] { return space().allocate(101); },
      "allocation 0 is of 101 bytes on CpuDevice(id=0), and in the rehearsal it was of 100 bytes "
      "on CpuDevice(id=0)");
  expect([&] { return space(1).allocate(100); }, "allocation 0 is of 100 bytes on CpuDevice(id=1)");
  expect([&] { return space().allocate(100); },
         "it allocated 1 times, and in the rehearsal 3 times");
  expect(
      [&] {
        space().allocate(100);
        space().allocate(100);
        space().allocate(8);
        return space().allocate(8);
      },
      "allocation 3, of 8 bytes on CpuDevice(id=0), is one more than in the rehearsal");
  expect(
      [&] {
        const BufferRef a = space().allocate(100);
        return space().allocate(100);
      },
      "at allocation 1, allocation 0, of 100 bytes, is still held");
  expect(
      [&] {
        space().allocate(100);
        std::vector<BufferRef> alive{space().allocate(100)};
        alive.push_back(space().allocate(8));
        return alive;
      },
      "when it ends, allocation 1, of 100 bytes, is still held");
  EXPECT_FALSE(capturing());
  EXPECT_NO_THROW(place(layout, [&] {
    space().allocate(100);
    space().allocate(100);
    return space().allocate(8);
  }));
}

TEST_F(PlanMemory, WrongSlabsAndOutputsThrow) {
  const MemoryLayout layout = plan_layout(rehearse([&] {
    space().allocate(100);
    return space().allocate(200);
  }));
  const BufferRef good = space().allocate(512), small = space().allocate(64),
                  elsewhere = space(1).allocate(512);
  const auto expect = [&](std::vector<BufferRef> slabs, std::vector<BufferRef> outputs,
                          const char* text) {
    expect_error<ValueError>([&] { PlacedMemory memory(layout, slabs, outputs); }, {text});
  };
  expect({}, {good}, "0 slabs were given, and the layout has 1");
  expect({good}, {good, good}, "2 outputs were given, and the layout has 1");
  expect({small}, {good}, "slab 0 is 64 bytes on CpuDevice(id=0), and the layout wants 128 bytes");
  expect({elsewhere}, {good}, "slab 0 is 512 bytes on CpuDevice(id=1)");
  expect({good}, {small}, "output 0 is 64 bytes");
  expect({good}, {BufferRef()}, "output 0 is null");
  EXPECT_NO_THROW(PlacedMemory(layout, {&good, 1}, {&good, 1}));
}

TEST_F(PlanMemory, BytesOfOthersComeWithTheirEvents) {
  Stream* const compute = backend->devices()[0].compute;
  Stream* const comm = backend->devices()[0].comm;
  std::vector<std::size_t> uses;
  const auto program = [&] {
    uses.clear();
    BufferRef a = space().allocate(64), b = space().allocate(64);
    touch(compute, {}, {a.get()});
    touch(comm, {}, {b.get()});
    touch(comm, {a.get()}, {b.get()});  // a: defined, then read
    a.reset(), b.reset();
    BufferRef both = space().allocate(128);
    uses.push_back(both->uses().size());  // the reader of a, which is the definition of b
    EXPECT_EQ(both->def(), Event());
    both.reset();  // never written: who comes next still has to wait for the same
    BufferRef left = space().allocate(64), right = space().allocate(64);
    uses.push_back(left->uses().size());
    uses.push_back(right->uses().size());
    touch(compute, {}, {left.get()});
    uses.push_back(left->uses().size());
    left.reset(), right.reset();
    both = space().allocate(128);  // left's definition; right's, which is the old one
    uses.push_back(both->uses().size());
    return 0;
  };
  const MemoryLayout layout = plan_layout(rehearse(program));
  EXPECT_THAT(uses, ElementsAre(0, 0, 0, 0, 0));  // rehearsed memory is new
  ASSERT_EQ(layout.slabs[0].bytes, 128);
  place(layout, program);
  EXPECT_THAT(uses, ElementsAre(1, 1, 1, 0, 2));
}

TEST_F(PlanMemory, OnlyTheNewestOccupantsCount) {
  Stream* const compute = backend->devices()[0].compute;
  std::size_t most = 0;
  int edges = 0;
  const auto program = [&] {
    for (int i = 0; i < 50; ++i) {
      const BufferRef b = space().allocate(64 * (1 + i % 3));
      most = std::max(most, b->uses().size());
      touch(i % 2 == 0 ? compute : backend->devices()[1].compute, {}, {b.get()});
    }
    return 0;
  };
  const MemoryLayout layout = plan_layout(rehearse(program));
  const auto slabs = slabs_of(layout);
  {
    PlacedMemory memory(layout, slabs, {});
    CaptureScope capture(*backend);
    program();
    const Ref<Graph> graph = capture.end();
    edges = graph->edges();
  }
  EXPECT_LE(most, 2u);        // the newest on each of two streams, not all that ever were there
  EXPECT_EQ(edges, 49 + 48);  // each after the one before it, and after that of its stream
}

// A value with many readers on two streams, whose bytes then go to as many values: each of these
// waits for the last reader on each stream.
TEST_F(PlanMemory, ManyReadersThenManyOwnersNeedFewEdges) {
  constexpr int kMany = 200;
  Stream* const streams[] = {backend->devices()[0].compute, backend->devices()[1].compute};
  const auto program = [&] {
    BufferRef read = space().allocate(64 * kMany);
    touch(streams[0], {}, {read.get()});
    for (int i = 0; i < kMany; ++i) touch(streams[i % 2], {read.get()}, {});
    read.reset();
    std::vector<BufferRef> owners;
    for (int i = 0; i < kMany; ++i) {
      owners.push_back(space().allocate(64));
      EXPECT_LE(owners.back()->uses().size(), 2u);
      touch(streams[0], {}, {owners.back().get()});
    }
    return 0;
  };
  const MemoryLayout layout = plan_layout(rehearse(program));
  EXPECT_EQ(layout.slabs[0].bytes, 64 * kMany);
  const auto slabs = slabs_of(layout);
  PlacedMemory memory(layout, slabs, {});
  CaptureScope capture(*backend);
  program();
  const Ref<Graph> graph = capture.end();
  EXPECT_EQ(graph->nodes(), 1 + 2 * kMany);
  // Each after the one before it in its stream. The first reader on the other stream is after the
  // definition, as all later ones are by their stream; the first of the later owners is after the
  // last reader on that stream.
  const std::vector<GraphTask> tasks = graph->tasks();
  EXPECT_THAT(tasks[1 + kMany].after, ElementsAre(kMany - 1, kMany));
  for (int i = 2 + kMany; i < 1 + 2 * kMany; ++i) {
    EXPECT_LE(tasks[static_cast<std::size_t>(i)].after.size(), 2u);
  }
}

TEST_F(PlanMemory, SegmentsNeedNoEdgesBetweenThem) {
  Stream* const compute = backend->devices()[0].compute;
  const auto program = [&](std::size_t* uses) {
    BufferRef kept;
    for (int segment = 0; segment < 2; ++segment) {
      CaptureScope capture(*backend);
      BufferRef b = space().allocate(64);
      if (uses != nullptr) *uses = b->uses().size();
      touch(compute, {}, {b.get()});
      if (kept) touch(compute, {kept.get()}, {b.get()});
      kept = segment == 0 ? space().allocate(256) : BufferRef();
      b.reset();
      capture.end();
    }
  };
  MemoryLayout layout;
  {
    MemoryRehearsal rehearsal;
    program(nullptr);
    layout = plan_layout(rehearsal.finish());
  }
  ASSERT_EQ(layout.slabs[0].bytes, 256 + 64);
  ASSERT_EQ(layout.places[0].offset, layout.places[2].offset);
  const auto slabs = slabs_of(layout);
  std::size_t uses = 1;
  PlacedMemory memory(layout, slabs, {});
  EXPECT_NO_THROW(program(&uses));
  memory.finish();
  EXPECT_EQ(uses, 0u);
}

// ---------------------------------------------------------------------------------------- proxies

TEST_F(PlanMemory, AProxyHasTheMemoryAndNothingElse) {
  BufferRef original = space().allocate(100);
  touch(backend->devices()[0].compute, {}, {original.get()});
  BufferRef proxy = proxy_of(original);
  EXPECT_EQ(proxy->data(), original->data());
  EXPECT_EQ(proxy->bytes(), 100);
  EXPECT_EQ(&proxy->space(), &space());
  EXPECT_TRUE(proxy->untouched());
  EXPECT_EQ(proxy.use_count(), 1);
  EXPECT_EQ(original.use_count(), 2);
  EXPECT_EQ(behind(*proxy), original);
  EXPECT_EQ(tape_index(*proxy), -1);
  EXPECT_EQ(behind(*original), BufferRef());
  EXPECT_EQ(tape_index(*original), -1);
  {
    CaptureScope capture(*backend);  // would refuse the original's definition
    touch(backend->devices()[0].compute, {proxy.get()}, {});
    touch(backend->devices()[0].comm, {}, {proxy.get()});
    EXPECT_EQ(capture.end()->nodes(), 2);
  }
  void* const data = original->data();
  const Buffer* const kept = original.get();
  original.reset();
  EXPECT_EQ(behind(*proxy).get(), kept);
  EXPECT_EQ(proxy->data(), data);
  backend->synchronize();
  EXPECT_GT(space().bytes_in_use(), 0);
  proxy.reset();
  EXPECT_EQ(space().bytes_in_use(), 0);
}

}  // namespace
}  // namespace shmap
