// Waiting: how long a thread looks before it sleeps, and when a wait has taken too long.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/wait_clock.h"
#include "core/cpu/executor/node.h"
#include "core/cpu/executor/running.h"

namespace shmap::cpu {

using Clock = std::chrono::steady_clock;

// The time that a thread looks for work, or for its event, before it sleeps: about what waking
// costs.
constexpr auto kSpin = std::chrono::microseconds(30);
// The most time that a thread looks where waking takes longer than kSpin. (In a virtual machine a
// sleeping core may take 0.7 ms to go on: a call that takes less, made again and again, would
// always run without the workers that it wakes.)
constexpr auto kMostSpin = std::chrono::microseconds(1000);
// The time to look if the event may come from another process, whose message the waiting thread
// takes itself. After at most kSpin the thread begins to yield its core.
constexpr auto kSpinForOthers = std::chrono::microseconds(300);
// The time to look if the processes share cores. The thread then offers its core after each look.
constexpr auto kSpinAmongMany = std::chrono::microseconds(1000);
// The most time that one look counts if the thread offered its core and another thread used it.
constexpr auto kMostOfLook = std::chrono::microseconds(2);

// How long waking a worker takes: a running mean from kSpin to kMostSpin.
class WakingTime {
 public:
  // To be called before a worker is woken. No effect while a worker that was woken has yet to go
  // on.
  void begin(Clock::time_point now) noexcept {
    if (begin_ == Clock::time_point()) begin_ = now;
  }
  // To be called when a worker goes on; only the first worker after begin() counts.
  void end(Clock::time_point now) noexcept {
    if (begin_ == Clock::time_point()) return;
    const std::chrono::nanoseconds took = now - begin_;
    begin_ = Clock::time_point();
    mean_ = (3 * mean_ + std::clamp<std::chrono::nanoseconds>(took, kSpin, kMostSpin)) / 4;
  }
  std::chrono::nanoseconds mean() const noexcept { return mean_; }

 private:
  Clock::time_point begin_;  // the epoch where no worker is being woken
  std::chrono::nanoseconds mean_{kSpin};
};

// How busy the executor's threads are.
struct Load {
  int workers = 0, cores = 0;
  int active = 0;    // threads that run a task
  int spinners = 0;  // workers that look for work
  int sleepers = 0;  // workers that are parked, with those that have been woken
  int woken = 0;     // workers that have been woken, and have yet to go on
  int lookers = 0;   // other threads that wait, and look for parts to run meanwhile
};

// How many more workers to wake where `parts` parts of tasks are ready, in all: a thread that looks
// takes one part, however many tasks became ready meanwhile. Workers that look for work, or have
// been woken, take parts without being woken. If waiting threads may run the tasks
// (`caller_helps`), those that look take parts too, and while any thread looks, workers are woken
// for idle cores only; the calling thread's core does not count as idle, since the thread may wait
// next and then runs parts itself.
inline int workers_to_wake(int parts, const Load& load, bool caller_helps) noexcept {
  const int looking = load.spinners + (caller_helps ? load.lookers : 0);
  const int taking = looking + load.woken;
  const int wake = std::max(0, std::min({parts - taking, load.sleepers - load.woken,
                                         load.workers - load.active - load.woken}));
  if (looking == 0 || !caller_helps) return wake;
  return std::clamp(load.cores - load.active - taking - 1, 0, wake);
}

// The tasks that threads run for the executor at the moment, as text: "; running: …". "" if there
// are none.
std::string running_tasks(const Executor& executor);

// The deadlines of one wait, from the executor's options: warns once when it takes long, throws
// when it takes too long. What counts is the time in which no task of the executor has begun, and
// no exchange with other processes was under way or has ended (exchanges have deadlines of their
// own, whose errors name processes); or, where other tasks go on, the time for which one task has
// run during the wait, since the wait may be for what comes after it. Much work that goes on is no
// reason to give up.
class Deadline {
 public:
  explicit Deadline(const Executor& executor) noexcept;
  // The waiting thread calls this now and then; `node` is what it waits for, null for all tasks.
  // Throws DeviceError when the time is up. Under a debugger the time stands still.
  void check(const Node* node);

 private:
  // A task that some thread runs, and the time at which the wait saw it first.
  struct Seen {
    const RunningTask* task;
    std::uint64_t serial;
    double since;
  };
  double longest_running();
  std::string text(const Node* node) const;

  const Executor& executor_;
  WaitClock clock_;
  std::int64_t progress_;
  double moved_ = 0;  // the time of the latest progress
  std::vector<Seen> running_;
};

}  // namespace shmap::cpu
