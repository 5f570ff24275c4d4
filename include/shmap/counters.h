// Counts of what this process did since the last reset_counters(). The counts are exact, and the
// same under every executor.
#pragma once
#include <cstdint>

namespace shmap {

// A kernel that computes a value for several devices of one memory space at once is one launch.
// syncs counts the waits of the host for a task. shmap/collectives.h has what collectives and
// collective_bytes count.
struct Counters {
  std::int64_t kernel_launches, copies, copied_bytes, collectives, collective_bytes, allocations,
      syncs;
};

// The counts at this moment. Work that other threads are doing meanwhile may or may not be
// included.
Counters counters();
void reset_counters();

}  // namespace shmap
