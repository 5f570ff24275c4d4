// shmap-test: devices
// Captured programs that run in planned memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/node.h"
#include "core/runtime/launch.h"
#include "shmap/ops.h"
#include "tests/runtime/planning.h"

namespace shmap {
namespace {

using test::kLarge;
using test::make_backend;
using test::outputs_of;
using test::slabs_of;

// A random program of buffers of 16 numbers each or a multiple, over all streams of three devices.
// Ops with results of their own, in place, scratch; buffers are let go at random.
struct Program {
  struct Values {
    BufferRef buffer;
    std::vector<std::int32_t> wanted;  // what it holds once its tasks are done
  };
  Backend& backend;
  std::uint32_t seed;

  static std::int32_t* at(const BufferRef& b) { return static_cast<std::int32_t*>(b->data()); }
  static std::int32_t mixed(std::int32_t x, std::int32_t y) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(x) * 31u +
                                     static_cast<std::uint32_t>(y) + 1u);
  }

  // Enqueues all of it. Returns what is alive at its end.
  std::vector<Values> run(const std::vector<Values>& inputs) const {
    std::mt19937 random(seed);
    std::vector<Values> alive = inputs;
    for (int i = 0; i < 60; ++i) {
      const LocalDevice& d = backend.devices()[random() % 3];
      Stream* const stream = random() % 2 == 0 ? d.compute : d.comm;
      const std::int64_t cost = random() % 2 == 0 ? 0 : kLarge;
      const std::size_t a = random() % alive.size(), b = random() % alive.size();
      if (random() % 4 == 0 && a != b && alive[a].buffer.use_count() == 1) {
        update(stream, cost, alive[a], alive[b]);
      } else {
        alive.push_back(combined(d, stream, cost, alive[a], alive[b], random() % 9));
      }
      while (alive.size() > 8 || (alive.size() > 2 && random() % 3 == 0)) {
        alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(random() % alive.size()));
      }
    }
    return alive;
  }

  // a = mixed(a, b), in place.
  void update(Stream* stream, std::int64_t cost, Values& a, const Values& b) const {
    Buffer* const reads[] = {b.buffer.get()};
    Buffer* const writes[] = {a.buffer.get()};
    const std::size_t na = a.wanted.size(), nb = b.wanted.size();
    std::lock_guard lock(backend.submit_mutex());
    launch({stream, "update", cost}, reads, writes,
           [=, x = at(a.buffer), y = at(b.buffer)](int, int, void*) {
             for (std::size_t k = 0; k < na; ++k) x[k] = mixed(x[k], y[k % nb]);
           });
    for (std::size_t k = 0; k < na; ++k) a.wanted[k] = mixed(a.wanted[k], b.wanted[k % nb]);
  }

  Values combined(const LocalDevice& d, Stream* stream, std::int64_t cost, const Values& a,
                  const Values& b, std::uint32_t size) const {
    const std::size_t n = 16 * (1 + size), na = a.wanted.size(), nb = b.wanted.size();
    Values out{d.space->allocate(static_cast<std::int64_t>(4 * n)), std::vector<std::int32_t>(n)};
    Buffer* const reads[] = {a.buffer.get(), b.buffer.get()};
    Buffer* const writes[] = {out.buffer.get()};
    std::lock_guard lock(backend.submit_mutex());
    launch({stream, "combine", cost}, reads, writes,
           [=, z = at(out.buffer), x = at(a.buffer), y = at(b.buffer)](int, int, void*) {
             for (std::size_t k = 0; k < n; ++k) z[k] = mixed(x[k % na], y[k % nb]);
           });
    for (std::size_t k = 0; k < n; ++k) out.wanted[k] = mixed(a.wanted[k % na], b.wanted[k % nb]);
    return out;
  }
};

void expect_replays_right(const std::string& devices, cpu::Mode mode, std::uint64_t executor_seed,
                          std::uint32_t program_seed, int launches) {
  const auto backend = make_backend(devices, mode, executor_seed);
  const std::string where =
      devices + " " + backend->repro() + ", program " + std::to_string(program_seed);
  const Program program{*backend, program_seed};
  std::vector<Program::Values> inputs(2);
  for (std::size_t i = 0; i < 2; ++i) {
    inputs[i].buffer = backend->devices()[i].space->allocate(64);
    inputs[i].wanted.resize(16);
  }
  const auto proxies = [&] {
    std::vector<Program::Values> out = inputs;
    for (auto& x : out) x.buffer = proxy_of(x.buffer);
    return out;
  };
  MemoryLayout layout;
  {
    MemoryRehearsal rehearsal;
    CaptureScope capture(*backend);
    const auto alive = program.run(proxies());
    layout = plan_layout(rehearsal.finish());
  }
  const auto slabs = slabs_of(layout), outputs = outputs_of(layout);
  Ref<Graph> graph;
  std::vector<BufferRef> results;
  {
    PlacedMemory memory(layout, slabs, outputs);
    CaptureScope capture(*backend);
    for (const auto& v : program.run(proxies())) {
      results.push_back(behind(*v.buffer));
      ASSERT_TRUE(results.back()) << where;
    }
    memory.finish();
    graph = capture.end();
  }
  std::mt19937 random(program_seed);
  for (int i = 0; i < launches; ++i) {
    for (auto& x : inputs) {
      for (std::size_t k = 0; k < 16; ++k) {
        x.wanted[k] = Program::at(x.buffer)[k] = static_cast<std::int32_t>(random());
      }
    }
    Event done;
    {
      std::lock_guard lock(backend->submit_mutex());
      done = graph->launch();
    }
    done.wait();
    // Eagerly, in memory of its own, for the values that are wanted.
    auto copies = inputs;
    for (auto& x : copies) {
      x.buffer = backend->devices()[0].space->allocate(64);
      std::copy_n(x.wanted.begin(), 16, Program::at(x.buffer));
    }
    const auto eager = program.run(copies);
    backend->synchronize();
    ASSERT_EQ(eager.size(), results.size());
    for (std::size_t r = 0; r < results.size(); ++r) {
      const auto n = static_cast<std::ptrdiff_t>(eager[r].wanted.size());
      const std::int32_t *got = Program::at(results[r]), *too = Program::at(eager[r].buffer);
      ASSERT_EQ(std::vector<std::int32_t>(got, got + n), eager[r].wanted)
          << where << ", launch " << i << ", result " << r;
      ASSERT_EQ(std::vector<std::int32_t>(too, too + n), eager[r].wanted) << where;
    }
  }
}

TEST(PlanReplay, ReplaysAreRightInAnyOrderOfTasks) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    for (const char* devices : {"3", "3/3"}) {
      expect_replays_right(devices, cpu::Mode::seeded, seed, static_cast<std::uint32_t>(seed), 20);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}
TEST(PlanReplay, ReplaysAreRightOnThreadsAndInline) {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    for (const char* devices : {"3", "3/3"}) {
      expect_replays_right(devices, cpu::Mode::async, 0, seed, 10);
      expect_replays_right(devices, cpu::Mode::inline_, 0, seed, 10);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// A chain that alternates between two streams, and a sum of its links on another device's stream,
// which falls behind. Each link overwrites an earlier one after the sum has read that one.
TEST(PlanReplay, AChainReusesItsBytesAfterALateReader) {
  constexpr std::size_t kLength = 12;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto backend = make_backend("2", cpu::Mode::seeded, seed);
    const LocalDevice &d = backend->devices()[0], &other = backend->devices()[1];
    const BufferRef in = d.space->allocate(64), out = d.space->allocate(64);
    const Program program{*backend, 0};
    const auto run = [&](const BufferRef& input) {
      Program::Values x{input, std::vector<std::int32_t>(16, *Program::at(in))};
      Program::Values sum = program.combined(other, other.compute, kLarge, x, x, 0);
      for (std::size_t i = 0; i < kLength; ++i) {
        x = program.combined(d, i % 2 == 0 ? d.compute : d.comm, kLarge, x, x, 0);
        program.update(other.compute, kLarge, sum, x);
      }
      return sum;
    };
    std::fill_n(Program::at(in), 16, 0);
    MemoryLayout layout;
    {
      MemoryRehearsal rehearsal;
      CaptureScope capture(*backend);
      const auto sum = run(proxy_of(in));
      layout = plan_layout(rehearsal.finish());
    }
    ASSERT_EQ(layout.slabs[0].bytes, 128);  // the links share two places
    const auto slabs = slabs_of(layout);
    Ref<Graph> graph;
    {
      PlacedMemory memory(layout, slabs, {&out, 1});
      CaptureScope capture(*backend);
      const auto sum = run(proxy_of(in));
      memory.finish();
      graph = capture.end();
    }
    for (std::int32_t i = 0; i < 100; ++i) {
      std::fill_n(Program::at(in), 16, i);
      Event done;
      {
        std::lock_guard lock(backend->submit_mutex());
        done = graph->launch();
      }
      done.wait();
      const auto eager = run(in);
      backend->synchronize();
      ASSERT_EQ(std::vector<std::int32_t>(Program::at(out), Program::at(out) + 16), eager.wanted)
          << backend->repro() << ", launch " << i;
    }
  }
}

// Under capture a donated operand is written in place even if a reader on another stream has yet to
// run; the writer then comes after that reader.
TEST(PlanReplay, InPlaceAfterAReaderHasAnEdge) {
  Array x = array<float>({1, 2, 3, 4}, {4});
  Backend& backend = stored_of(x)->mesh->backend();
  backend.synchronize();
  const LocalDevice& device = stored_of(x)->mesh->local(0);
  const auto edges = [&](bool with_reader) {
    MemoryRehearsal rehearsal;
    CaptureScope capture(backend);
    Array y = x + 1;
    const void* const data = stored_of(y)->blocks()[0].data();
    if (with_reader) {
      Buffer* const reads[] = {stored_of(y)->blocks()[0].buffer.get()};
      std::lock_guard lock(backend.submit_mutex());
      launch({device.comm, "reader", kLarge}, reads, {}, [](int, int, void*) {});
    }
    const Array z = std::move(y) * 2;
    EXPECT_EQ(stored_of(z)->blocks()[0].data(), data);
    const std::size_t allocations = rehearsal.finish().size();
    const Ref<Graph> graph = capture.end();
    EXPECT_EQ(graph->nodes() - (with_reader ? 1 : 0), 2 * static_cast<int>(allocations));
    return graph->edges();
  };
  // The reader after the sum, and the product after the reader.
  EXPECT_EQ(edges(true), edges(false) + 2);
}

}  // namespace
}  // namespace shmap
