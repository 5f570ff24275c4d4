// What this process did since the last reset: exact counts, the same under every executor.
#pragma once
#include <cstdint>

namespace shmap {

struct Counters {
  std::int64_t kernel_launches, copies, copied_bytes, collectives, collective_bytes, allocations,
      syncs;
};

// A snapshot. Work of other threads that is under way may or may not be in it.
Counters counters();
void reset_counters();

}  // namespace shmap
