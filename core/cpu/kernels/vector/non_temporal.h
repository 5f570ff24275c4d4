// Stores past the caches.
#pragma once
#include <cstdint>

namespace shmap::cpu {

// memcpy with non-temporal stores for the whole cache lines of `out`. Other threads may see them
// only after non_temporal_fence().
void store_non_temporal(void* out, const void* in, std::int64_t bytes);
void non_temporal_fence();

// Both: for a destination that is not read soon.
void copy_non_temporal(void* out, const void* in, std::int64_t bytes);

}  // namespace shmap::cpu
