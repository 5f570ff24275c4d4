#include "core/cpu/executor/caller_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/signals_blocked.h"
#include "core/base/wait_clock.h"
#include "core/base/warning.h"
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/running.h"
#include "core/device/fork_guard.h"
#include "core/device/timeline.h"
#include "core/processes/exchanges.h"
#include "core/processes/processes.h"

namespace shmap::cpu {

using std::chrono::nanoseconds;

void CallerWatch::begin() noexcept {
  seen_.store(true);
  if (!started_.load(std::memory_order_relaxed)) {
    if (started_.exchange(true)) return;
    const ExecutorOptions& options = executor_.options();
    if (options.warn_sec <= 0 && options.timeout_sec <= 0) return;
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    const SignalsBlocked blocked;
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::bad_alloc&) {
      started_.store(false);              // the next task tries again
    } catch (const std::system_error&) {  // the kernel runs without a watch
    }
  } else if (asleep_.load()) {
    { std::lock_guard lock(mutex_); }
    wake_.notify_one();
  }
}

void CallerWatch::stop() noexcept {
  std::thread thread;
  {
    if (forked()) return thread_.joinable() ? thread_.detach() : void();
    std::lock_guard lock(mutex_);
    stopping_ = true;
    thread.swap(thread_);
  }
  wake_.notify_one();
  if (thread.joinable()) thread.join();
  std::lock_guard lock(mutex_);
  stopping_ = false;
  started_.store(false);
}

bool CallerWatch::any() const noexcept {
  bool any = false;
  for_each_running([&](const RunningTask& running) {
    any = any || (running.executor == &executor_ && !running.on_worker && running.begin_ns != 0);
  });
  return any;
}

void CallerWatch::run() noexcept {
  const ExecutorOptions& options = executor_.options();
  double shortest = options.warn_sec > 0 ? options.warn_sec : options.timeout_sec;
  if (options.timeout_sec > 0) shortest = std::min(shortest, options.timeout_sec);
  const std::chrono::duration<double> turn(std::clamp(shortest / 4, 0.01, 1.0));
  std::unique_lock lock(mutex_);
  for (int idle = 0; !stopping_;) {
    const std::int64_t begin = timeline_now();
    wake_.wait_for(lock, turn, [&] { return stopping_; });
    if (stopping_) return;
    // The process was stopped meanwhile.
    const std::int64_t late =
        timeline_now() - begin - std::chrono::duration_cast<nanoseconds>(turn).count();
    if (late > nanoseconds(kMostBetweenLooks).count()) do_not_count(late, begin);
    const bool any = seen_.exchange(false) || this->any();
    lock.unlock();
    try {
      if (any) look();
    } catch (const std::bad_alloc&) {  // warns at the next look instead
    }
    lock.lock();
    idle = any ? 0 : idle + 1;
    if (idle < 2 || stopping_) continue;
    asleep_.store(true);
    wake_.wait(lock, [&] { return stopping_ || seen_.load(); });
    asleep_.store(false);
    idle = 0;
  }
}

void CallerWatch::do_not_count(std::int64_t ns, std::int64_t since) const {
  for_each_running([&](RunningTask& running) {
    if (running.executor == &executor_ && running.begin_ns != 0 && running.begin_ns < since)
      running.begin_ns += ns;
  });
}

void CallerWatch::look() const {
  const double warn_sec = executor_.options().warn_sec;
  const double timeout_sec = executor_.options().timeout_sec;
  std::vector<std::string> warnings;
  std::string stuck;
  for_each_running([&](RunningTask& running) {
    if (running.executor != &executor_ || running.on_worker || running.begin_ns == 0) return;
    const double sec = static_cast<double>(timeline_now() - running.begin_ns) * 1e-9;
    const bool said = running.warned.load(std::memory_order_relaxed);
    const bool late = timeout_sec > 0 && sec > timeout_sec && !under_debugger();
    if (!late && (said || warn_sec <= 0 || sec <= warn_sec)) return;
    running.warned.store(true, std::memory_order_relaxed);
    const std::string text = "the kernel of " + describe(running) + "\n  has run for " +
                             fmt::format("{:.1f}", sec) + " s on the thread that called it";
    if (late)
      stuck = text;
    else
      warnings.push_back(text + ", which cannot go on before it ends (SHMAP_COLLECTIVE_WARN_SEC)");
  });
  for (const std::string& text : warnings) warn(text);
  if (!stuck.empty()) end_process(stuck);
}

void CallerWatch::end_process(const std::string& what) {
  warn(what +
       ", longer than SHMAP_COLLECTIVE_TIMEOUT_SEC: the thread cannot be taken back from the "
       "kernel, and this process ends now, with the exit code 1");
  if (Processes* job = Processes::joined()) {
    job->exchanges().write_record("This process ends");
    job->exchanges().give_up("ends with the exit code 1: " + what);
  }
  _exit(1);
}

}  // namespace shmap::cpu
