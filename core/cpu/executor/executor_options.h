// ExecutorOptions: how an executor works, read from the environment.
#pragma once
#include <cstdint>

#include "core/processes/while_waiting.h"

namespace shmap::cpu {

enum class Mode : std::uint8_t {
  inline_,  // each task at enqueue, on the calling thread
  async,    // on a pool of workers; small tasks at enqueue if no task is before them
  seeded,   // on the calling threads, in an order drawn from a seed
};

struct ExecutorOptions {
  Mode mode = Mode::async;
  std::uint64_t seed = 0;
  int workers = 0;  // 0: one for each core that this process may run on
  int cores = 0;    // how many cores its threads share; 0: all that this process may run on
  double warn_sec = 30, timeout_sec = 600;  // time limits of one wait, in seconds; 0: none
  int max_in_flight = 4096;                 // with so many tasks in flight, an enqueue makes room
  // Tasks up to this cost run at enqueue: to wake a parked worker takes some 20 us, as long as the
  // task itself.
  std::int64_t inline_ns = 20'000;
  // The function that a waiting thread calls again and again while it has no task to run.
  detail::LookAgain (*look)() noexcept = detail::look_around;

  // Reads SHMAP_EXECUTOR, SHMAP_WORKERS, SHMAP_COLLECTIVE_WARN_SEC and
  // SHMAP_COLLECTIVE_TIMEOUT_SEC. ValueError where a value cannot be parsed.
  static ExecutorOptions from_environment();
};

// The cores that the affinity mask of this thread and the CPU quota of this process's cgroups
// allow.
int available_cores();

}  // namespace shmap::cpu
