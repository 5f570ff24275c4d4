// A CPU backend with an executor of its own, beside the process's, and tasks for its streams.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/cpu/device/backend.h"
#include "core/cpu/executor/executor.h"

namespace shmap::cpu::testing {

// The cost of a task that does not run at enqueue, in ns.
inline constexpr std::int64_t kLarge = 10'000'000;

inline ExecutorOptions with(Mode mode, std::uint64_t seed = 0, int workers = 2) {
  ExecutorOptions options;
  options.mode = mode;
  options.seed = seed;
  options.workers = workers;
  return options;
}

inline std::unique_ptr<CpuBackend> make(const ExecutorOptions& options,
                                        const char* devices = "cpu:8") {
  return std::make_unique<CpuBackend>(DeviceSpec::parse(devices), 0, 0, options, -1);
}

template <class F>
Task task_of(F& f, std::int64_t cost_ns = kLarge, int parts = 1) {
  Task task;
  task.name = "test";
  task.args = &f;
  task.run = [](void* g, const TaskContext& c) { (*static_cast<F*>(g))(c); };
  task.cost_ns = cost_ns;
  task.parts = parts;
  return task;
}

inline Event enqueue(Backend& backend, Stream* stream, const Task& task,
                     std::vector<Event> waits = {}) {
  std::lock_guard lock(backend.submit_mutex());
  return stream->enqueue(task, waits);
}

// Blocks a task until it is opened.
struct Gate {
  std::atomic<bool> open{false}, reached{false};
  void operator()(const TaskContext&) {
    reached = true;
    while (!open) std::this_thread::yield();
  }
  void wait_reached() const {
    while (!reached) std::this_thread::yield();
  }
};

}  // namespace shmap::cpu::testing
