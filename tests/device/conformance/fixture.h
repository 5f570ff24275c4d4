// Code that the tests of a backend share. Those of this folder are the conformance suite of the
// device layer: every backend has to pass them, whatever its executor. A backend instantiates each
// of the suites with a Traits type:
//
//   // The number and places of devices are those of SHMAP_DEVICES, after "cpu:".
//   static std::unique_ptr<Backend> make(const std::string& devices, std::int64_t memory_limit);
//   // Enqueue, on the stream behind `native`:
//   static void mix(void* native, std::int32_t* x, std::int32_t v);         // *x = *x * 31 + v
//   static void add(void* native, std::int32_t* x, const std::int32_t* y);  // *x = *x * 31 + *y
//   static void copy(void* native, std::int32_t* x, const std::int32_t* y);  // *x = *y
//   // Blocking, from and to the host:
//   static void upload(std::int32_t* x, std::int32_t v);
//   static std::int32_t download(const std::int32_t* x);
//   // Only where tasks run when they are captured: why tests of tasks that fail later are skipped.
//   static constexpr const char* kRunsTasksWhenCaptured;
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
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
class DeviceFixture : public ::testing::Test {
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

}  // namespace shmap::testing
