// Executor::run_parts: the parts of a caller's loop, shared with the workers.
#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>

#include "core/base/spin_lock.h"
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/task_scope.h"
#include "core/cpu/executor/waiting.h"
#include "core/device/backend.h"
#include "core/device/fork_guard.h"

namespace shmap::cpu {

namespace {

// The state that run_parts shares with the workers. It outlives the call, because a worker may come
// late and then finds no part left.
struct Parts : RefCounted {
  Parts(int n, void (*r)(void*, int), void* a) noexcept : count(n), run(r), args(a) {}
  const int count;
  void (*const run)(void* args, int part);
  void* const args;
  std::atomic<int> next{0}, done{0};
  SpinLock lock;
  std::exception_ptr error;

  // Runs parts until none is left; true if this thread ended the last part.
  bool work() noexcept {
    bool last = false;
    for (int part; (part = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      try {
        run(args, part);
      } catch (...) {
        std::lock_guard guard(lock);
        if (error == nullptr) error = std::current_exception();
      }
      last = done.fetch_add(1, std::memory_order_acq_rel) + 1 == count;
    }
    return last;
  }
};

}  // namespace

void Executor::run_parts(int parts, void (*run)(void* args, int part), void* args, Stream& stream) {
  if (parts <= 0) return;
  if (forked()) throw_forked();
  if (parts == 1 || in_task() || options_.mode != Mode::async || options_.workers == 1) {
    const TaskScope scope("parallel_for");
    const bool backwards = options_.mode == Mode::seeded && options_.seed % 2 == 1;
    for (int i = 0; i < parts; ++i) run(args, backwards ? parts - 1 - i : i);
    return;
  }
  const Ref<Parts> shared = make_ref<Parts>(parts, run, args);
  struct Helper {
    Ref<Parts> parts;
    Executor& executor;
  };
  Task task;
  task.name = "parallel_for";
  task.args = new Helper{shared, *this};
  task.parts = std::min(parts, options_.workers) - 1;
  task.run = [](void* h, const TaskContext&) {
    auto& helper = *static_cast<Helper*>(h);
    if (helper.parts->work()) {
      { std::lock_guard lock(helper.executor.done_mutex_); }
      helper.executor.done_.notify_all();
    }
  };
  task.drop = [](void* h) noexcept { delete static_cast<Helper*>(h); };
  submit(*Node::make(*this, task, &stream));
  {
    const TaskScope scope(task.name);
    shared->work();
  }
  Deadline deadline(*this);
  const auto all_done = [&] { return shared->done.load(std::memory_order_acquire) == parts; };
  const auto until = Clock::now() + kSpin;
  while (!all_done() && Clock::now() < until) cpu_relax();
  while (!all_done()) {
    {
      std::unique_lock lock(done_mutex_);
      done_.wait_for(lock, std::chrono::milliseconds(20), all_done);
    }
    // The parts use the caller's memory, so they cannot be left behind: a late part only causes a
    // warning.
    deadline.check(nullptr, /*may_throw=*/false);
  }
  if (shared->error != nullptr) std::rethrow_exception(shared->error);
}

}  // namespace shmap::cpu
