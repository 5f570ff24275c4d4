// Threads that wait for the executor: for the end of a task, for room, for the end of all tasks.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/spin_lock.h"
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/waiting.h"
#include "core/device/fork_guard.h"
#include "core/processes/processes.h"
#include "core/processes/while_waiting.h"

namespace shmap::cpu {

using std::chrono::milliseconds;

thread_local Executor* Executor::spins_in = nullptr;

// Wakes the worker that was not woken because this thread was expected to run a ready task. A
// thread that makes tasks ready counts the lookers under the mutex: it either saw that this thread
// had left, or its tasks are seen here.
void Executor::leave_to_workers() noexcept {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    wake = begin_waking_for_ready();
  }
  if (wake) work_.notify_one();
}

// Looks until the awaited event has come (`pending` returns false), a task is ready to run, or the
// time limit for looking is over. Returns true in the last case: another thread then looks for
// messages, and this thread should sleep.
template <class Pending>
bool Executor::spin(Pending pending) noexcept {
  detail::ActiveWait active;
  struct Entered {
    explicit Entered(Executor& executor) noexcept {
      spins_in = &executor;
      executor.lookers_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Entered() {
      spins_in->lookers_.fetch_sub(1, std::memory_order_relaxed);
      spins_in = nullptr;
    }
  } const entered(*this);
  auto begin = Clock::now(), looked = begin;
  const auto yields_after =
      std::chrono::nanoseconds(yields_after_ns_.load(std::memory_order_relaxed));
  bool yielded = false;
  std::chrono::nanoseconds alone_for{0};  // time_to_look(), once this thread has looked for kSpin
  while (pending() && ready_parts_.load(std::memory_order_relaxed) == 0) {
    const detail::LookAgain again = options_.look();
    const bool others = again != detail::LookAgain::no_reason;
    if (others && !pending()) {
      learn_to_yield(yielded);
      return false;
    }
    // Many collectives may have to end before the one that this thread waits for, which can take
    // longer than a thread looks in vain.
    if (again == detail::LookAgain::moved) {
      begin = Clock::now();
      continue;
    }
    const auto now = Clock::now();
    // Time in which another thread used this core does not count as time spent looking.
    if (again == detail::LookAgain::yielding && now - looked > kMostOfLook)
      begin += now - looked - kMostOfLook;
    looked = now;
    const auto waited = now - begin;
    if (waited > (again == detail::LookAgain::yielding ? kSpinAmongMany
                  : others                             ? kSpinForOthers
                                                       : kSpin)) {
      if (others) break;
      if (alone_for == alone_for.zero()) {
        std::lock_guard lock(mutex_);
        alone_for = time_to_look();
      }
      if (waited > alone_for) break;
    }
    if (again == detail::LookAgain::yielding || (others && waited > yields_after)) {
      yielded = true;
      std::this_thread::yield();
    } else {
      for (int i = 0; i < (others ? 2 : 32); ++i) cpu_relax();
    }
  }
  const bool too_long = pending() && ready_parts_.load(std::memory_order_relaxed) == 0;
  if (too_long) active.hand_over();
  return too_long;
}

// A worker without a task may just have started an exchange with other processes. It looks for
// messages, as a waiting thread does, unless another thread looks already. Otherwise the thread
// that handles messages would have to wake up for each message.
void Executor::look_for_others() noexcept {
  const auto alone = [this] {
    return lookers_.load(std::memory_order_relaxed) <= 1 && !stopped_.load();
  };
  if (lookers_.load(std::memory_order_relaxed) != 0) return;
  if (options_.look() == detail::LookAgain::no_reason) return;
  spin(alone);
  leave_to_workers();
}

int Executor::other_lookers() const noexcept {
  if (Processes::joined() != nullptr) return 0;
  return lookers_.load(std::memory_order_relaxed) - (spins_in == this ? 1 : 0);
}

// If a message came while this thread offered its core, the sender perhaps runs on the same core
// and had to wait for it. The next wait therefore offers the core sooner.
void Executor::learn_to_yield(bool yielded) noexcept {
  constexpr std::int64_t kLeast = 2000, kMost = std::chrono::nanoseconds(kSpin).count();
  const std::int64_t ns = yields_after_ns_.load(std::memory_order_relaxed);
  yields_after_ns_.store(yielded ? std::max(ns / 2, kLeast) : std::min(ns * 2, kMost),
                         std::memory_order_relaxed);
}

void Executor::wait(Node& node) {
  if (forked()) throw_forked();
  Deadline deadline(*this);
  // Without workers only waiting threads run what becomes ready later: look often.
  const bool alone = options_.mode != Mode::async;
  while (node.pending()) {
    if (ready_parts_.load(std::memory_order_relaxed) != 0 && help(&node)) continue;
    const bool handed_over = spin([&] { return node.pending(); });
    if (!handed_over && node.pending() && help(&node)) continue;
    leave_to_workers();
    if (!node.announce_sleeper()) break;
    if (!handed_over) detail::hand_over_looking();
    const auto slice = milliseconds(alone || stopped_.load() ? 1 : 50);
    {
      std::unique_lock lock(done_mutex_);
      done_.wait_for(lock, slice, [&] { return !node.pending(); });
    }
    deadline.check(&node);
  }
}

void Executor::interleave() {
  if (options_.mode != Mode::seeded) return;
  int turns = 0;
  {
    std::lock_guard lock(mutex_);
    turns = static_cast<int>(random() % 4) - 1;
  }
  for (; turns > 0 && help(); --turns) {
  }
}

void Executor::make_room() {
  if (in_flight_.load(std::memory_order_relaxed) < options_.max_in_flight) return;
  Deadline deadline(*this);
  waiting_for_room_.fetch_add(1);
  const auto full = [&] { return in_flight_.load() >= low_water(); };
  while (full()) {
    if (help()) continue;
    const bool handed_over = spin(full);
    if (!handed_over && full() && help()) continue;
    leave_to_workers();
    if (!full()) break;
    if (!handed_over) detail::hand_over_looking();
    {
      std::unique_lock lock(done_mutex_);
      done_.wait_for(lock, milliseconds(options_.mode == Mode::async ? 20 : 1),
                     [&] { return !full(); });
    }
    try {
      deadline.check(nullptr);
    } catch (...) {
      waiting_for_room_.fetch_sub(1);
      throw;
    }
  }
  waiting_for_room_.fetch_sub(1);
}

void Executor::drain() {
  waiting_for_room_.fetch_add(1);
  while (in_flight_.load() > 0) {
    if (help()) continue;
    std::unique_lock lock(done_mutex_);
    done_.wait_for(lock, milliseconds(20), [&] { return in_flight_.load() == 0; });
  }
  waiting_for_room_.fetch_sub(1);
}

}  // namespace shmap::cpu
