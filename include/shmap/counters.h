// What this process did since the last reset_counters(): exact counts, equal under every executor.
#pragma once
#include <cstdint>

namespace shmap {

struct Counters {
  std::int64_t kernel_launches, copies, copied_bytes, collectives, collective_bytes, allocations,
      syncs;
};

// A snapshot. It may or may not include work that other threads are doing at the moment.
Counters counters();
void reset_counters();

}  // namespace shmap
