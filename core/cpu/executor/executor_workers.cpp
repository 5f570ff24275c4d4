// The executor's threads: their start, what each does, and their end.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <system_error>
#include <utility>

#include "core/base/signals_blocked.h"
#include "core/base/spin_lock.h"
#include "core/base/warning.h"
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/running.h"
#include "core/cpu/executor/waiting.h"
#include "core/processes/processes.h"

namespace shmap::cpu {

using std::chrono::milliseconds;

void Executor::start_workers() {
  if (started_.exchange(true)) return;
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  const SignalsBlocked blocked;
  try {
    threads_.reserve(static_cast<std::size_t>(options_.workers));
    for (int i = 0; i < options_.workers; ++i) {
      Worker& w = threads_.emplace_back();
      w.thread = std::thread([this, &w] { worker(w); });
    }
  } catch (const std::bad_alloc&) {
    if (!threads_.empty() && !threads_.back().thread.joinable()) threads_.pop_back();
    if (threads_.empty()) started_.store(false);  // the next task tries again
  } catch (const std::system_error& e) {
    threads_.pop_back();
    // Fewer workers will do. Without any, a task runs only when a thread waits for its result.
    if (threads_.empty()) {
      char text[256];
      std::snprintf(text, sizeof text,
                    "no worker thread could be started (%s): tasks run while their results are "
                    "waited for",
                    e.what());
      warn(text);
    }
  }
}

void Executor::worker(Worker& self) noexcept {
  const int max_spinners = std::min(options_.workers, options_.cores) - 1;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Part part;
    if (take_part(part, false)) {
      const bool wake_for_rest = begin_waking_for_rest(part);
      lock.unlock();
      if (wake_for_rest) work_.notify_one();
      run_part(part, /*on_worker=*/true);
      lock.lock();
      --active_;
      active_comm_ -= part.comm;
      continue;
    }
    // If no core is idle, the worker does not look for more tasks: it would take the core from a
    // thread that runs a task, perhaps the very task for which this worker was woken (a waiting
    // thread takes tasks too), or from a waiting thread that looks.
    const bool idle_core = active_ + spinners_ + other_lookers() < options_.cores;
    if (ready_parts_.load(std::memory_order_relaxed) == 0 && spinners_ < max_spinners &&
        idle_core) {
      ++spinners_;
      const auto until = Clock::now() + time_to_look();
      lock.unlock();
      while (ready_parts_.load(std::memory_order_relaxed) == 0 && Clock::now() < until) {
        for (int i = 0; i < 32; ++i) cpu_relax();
      }
      lock.lock();
      --spinners_;
      if (ready_parts_.load(std::memory_order_relaxed) > 0 || stopping_) continue;
    }
    if (ready_parts_.load(std::memory_order_relaxed) == 0) {
      lock.unlock();
      look_for_others();
      lock.lock();
      if (ready_parts_.load(std::memory_order_relaxed) > 0 || stopping_) continue;
    }
    ++sleepers_;
    work_.wait(lock);
    --sleepers_;
    if (woken_ > 0) --woken_;
    waking_.end(Clock::now());
  }
  self.left = true;
  left_.notify_all();
}

// A thread that looks for long must not take the core of one that runs a task, nor of another
// process of the job.
std::chrono::nanoseconds Executor::time_to_look() const noexcept {
  const int busy = active_ + spinners_ + lookers_.load(std::memory_order_relaxed);
  return busy <= options_.cores && Processes::joined() == nullptr ? waking_.mean() : kSpin;
}

bool Executor::stop() noexcept {
  callers_.stop();
  // A user's kernel that still runs on a user's thread keeps the process from ending if a
  // destructor joins that thread: such kernels are watched again.
  if (callers_.any()) callers_.begin();
  std::vector<Worker> workers;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    stopped_.store(true);
    workers.swap(threads_);
  }
  work_.notify_all();
  wait_for_workers(workers);
  bool all_left = true;
  std::unique_lock lock(mutex_);
  for (Worker& w : workers) {
    const bool self = w.thread.get_id() == std::this_thread::get_id();  // a task ends the process
    if (!w.left) {
      all_left = all_left && self;
      w.thread.detach();
    }
  }
  lock.unlock();
  for (Worker& w : workers) {
    if (w.thread.joinable()) w.thread.join();
  }
  // A worker that still runs uses its Worker, so the vector is leaked on purpose.
  if (!all_left) new std::vector<Worker>(std::move(workers));
  return all_left;
}

void Executor::wait_for_workers(const std::vector<Worker>& workers) noexcept {
  const auto all_left = [&] {
    return std::ranges::all_of(workers, [](const Worker& w) {
      return w.left || w.thread.get_id() == std::this_thread::get_id();
    });
  };
  WaitClock clock(options_.warn_sec, options_.timeout_sec);
  std::unique_lock lock(mutex_);
  while (!left_.wait_for(lock, milliseconds(50), all_left)) {
    const WaitClock::Due due = clock.look();
    if (due == WaitClock::Due::nothing) continue;
    const bool late = due == WaitClock::Due::failure;
    if (late) abandoned_.store(true);
    lock.unlock();
    try {
      warn("the process is about to end, and waits for its workers since " +
           fmt::format("{:.1f}", clock.seconds()) + " s" + running_tasks(*this) +
           (late ? "\n  It ends without them now (SHMAP_COLLECTIVE_TIMEOUT_SEC)."
                 : " (SHMAP_COLLECTIVE_WARN_SEC)"));
    } catch (const std::bad_alloc&) {
      warn("the process is about to end, and a worker's task has not ended");
    }
    lock.lock();
    if (late) return;
  }
}

}  // namespace shmap::cpu
