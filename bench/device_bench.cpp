// The costs of the device layer itself: of an enqueue, a hand-over, an allocation and a replay.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/counters.h"
#include "core/cpu/device/backend.h"

namespace shmap {
namespace {

constexpr std::int64_t kLarge = 10'000'000;

std::unique_ptr<Backend> make(cpu::Mode mode) {
  cpu::ExecutorOptions options;
  options.mode = mode;
  return std::make_unique<cpu::CpuBackend>(DeviceSpec::parse("cpu:8"), 0, 0, options, -1);
}

Task empty_task(std::int64_t cost_ns, int parts = 1) {
  Task task;
  task.name = "empty";
  task.cost_ns = cost_ns;
  task.parts = parts;
  task.run = [](void*, const TaskContext& c) {
    int part = c.part;  // DoNotOptimize is deprecated for constants
    benchmark::DoNotOptimize(part);
  };
  return task;
}

void count_one(benchmark::State& state) {
  for (auto _ : state) count(Counter::copies);
}
BENCHMARK(count_one);

// A small task with nothing before it, which runs on the calling thread.
void enqueue_small(benchmark::State& state) {
  const auto backend = make(cpu::Mode::async);
  Stream* stream = backend->devices()[0].compute;
  const Task task = empty_task(100);
  const std::vector<Event> waits(static_cast<std::size_t>(state.range(0)));
  std::lock_guard lock(backend->submit_mutex());
  for (auto _ : state) benchmark::DoNotOptimize(stream->enqueue(task, waits));
}
BENCHMARK(enqueue_small)->ArgName("waits")->Arg(0)->Arg(3);

void enqueue_small_with_lock(benchmark::State& state) {
  const auto backend = make(cpu::Mode::async);
  Stream* stream = backend->devices()[0].compute;
  const Task task = empty_task(100);
  for (auto _ : state) {
    std::lock_guard lock(backend->submit_mutex());
    benchmark::DoNotOptimize(stream->enqueue(task, {}));
  }
}
BENCHMARK(enqueue_small_with_lock);

// The throughput of queueing and running tasks that are handed over without waiting, by number of
// streams.
void queued_throughput(benchmark::State& state) {
  const auto backend = make(cpu::Mode::async);
  const auto streams = static_cast<std::size_t>(state.range(0));
  const Task task = empty_task(kLarge);
  std::size_t i = 0;
  for (auto _ : state) {
    std::lock_guard lock(backend->submit_mutex());
    benchmark::DoNotOptimize(backend->devices()[i++ % streams].compute->enqueue(task, {}));
  }
  backend->synchronize();
}
BENCHMARK(queued_throughput)->ArgName("streams")->Arg(1)->Arg(8)->UseRealTime();

// A task that is handed over and waited for at once, so that the waiting caller runs it.
void enqueue_and_wait(benchmark::State& state) {
  const auto backend = make(cpu::Mode::async);
  const Task task = empty_task(kLarge, static_cast<int>(state.range(0)));
  for (auto _ : state) {
    Event e;
    {
      std::lock_guard lock(backend->submit_mutex());
      e = backend->devices()[0].compute->enqueue(task, {});
    }
    e.wait();
  }
}
BENCHMARK(enqueue_and_wait)->ArgName("parts")->Arg(1)->Arg(2)->Arg(16)->UseRealTime();

void allocate_and_free(benchmark::State& state) {
  const auto backend = make(cpu::Mode::async);
  MemorySpace& space = *backend->devices()[0].space;
  for (auto _ : state) benchmark::DoNotOptimize(space.allocate(state.range(0))->data());
}
BENCHMARK(allocate_and_free)->ArgName("bytes")->Arg(4096)->Arg(16 << 20);

// A chain of 100 tasks over 8 devices, captured.
void replay(benchmark::State& state) {
  const auto backend = make(cpu::Mode::async);
  const Task task = empty_task(state.range(0));
  Ref<Graph> graph;
  {
    CaptureScope capture(*backend);
    Event e;
    for (std::size_t i = 0; i < 100; ++i) {
      const LocalDevice& d = backend->devices()[i % 8];
      e = (i % 2 == 0 ? d.compute : d.comm)->enqueue(task, {&e, 1});
    }
    graph = capture.end();
  }
  for (auto _ : state) {
    Event e;
    {
      std::lock_guard lock(backend->submit_mutex());
      e = graph->launch();
    }
    e.wait();
  }
}
BENCHMARK(replay)->ArgName("cost_ns")->Arg(0)->Arg(kLarge)->UseRealTime();

// The time until a parked worker begins a task: tasks that are shorter run at enqueue.
void wake_a_parked_worker(benchmark::State& state) {
  const auto backend = make(cpu::Mode::async);
  std::atomic<std::int64_t> began{0};
  Task task;
  task.name = "began";
  task.cost_ns = kLarge;
  task.args = &began;
  task.run = [](void* b, const TaskContext&) {
    static_cast<std::atomic<std::int64_t>*>(b)->store(
        std::chrono::steady_clock::now().time_since_epoch().count());
  };
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    began = 0;
    const auto start = std::chrono::steady_clock::now().time_since_epoch().count();
    {
      std::lock_guard lock(backend->submit_mutex());
      backend->devices()[0].compute->enqueue(task, {});
    }
    while (began.load() == 0) {
    }
    state.SetIterationTime(static_cast<double>(began.load() - start) * 1e-9);
  }
}
BENCHMARK(wake_a_parked_worker)->UseManualTime()->Iterations(300);

}  // namespace
}  // namespace shmap

BENCHMARK_MAIN();
