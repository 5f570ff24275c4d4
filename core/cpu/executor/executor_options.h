// ExecutorOptions: how an executor works, and what the environment says about it.
#pragma once
#include <cstdint>

namespace shmap::cpu {

enum class Mode : std::uint8_t {
  inline_,  // each task at enqueue, on the calling thread
  async,    // on a pool of workers; small ones at enqueue where nothing is before them
  seeded,   // on the calling threads, in an order drawn from a seed
};

struct ExecutorOptions {
  Mode mode = Mode::async;
  std::uint64_t seed = 0;
  int workers = 0;  // 0: as many as there are cores that this process may run on
  int cores = 0;    // those; the executor asks
  double warn_sec = 30, timeout_sec = 600;  // of a wait; 0: never
  int max_in_flight = 4096;                 // tasks beyond which enqueueing runs some first
  // Work up to this runs at enqueue: handing it over costs a wake-up, some 20 us to a parked
  // worker, and in that time it is done.
  std::int64_t inline_ns = 20'000;

  // From SHMAP_EXECUTOR, SHMAP_WORKERS, SHMAP_COLLECTIVE_WARN_SEC and …_TIMEOUT_SEC. Throws
  // ValueError where one cannot be read.
  static ExecutorOptions from_environment();
};

// As many as the affinity mask of this thread and the CPU quota of this process's cgroups allow.
int available_cores();

}  // namespace shmap::cpu
