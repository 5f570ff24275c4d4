// The size from which on results are stored past the caches.
#pragma once
#include <cstdint>

namespace shmap::cpu {

// Bytes. A store past the caches does not first read the lines that it overwrites; for a result
// that fits in the last cache, an ordinary store is faster still. Computed once; thread-safe.
std::int64_t store_around_bytes() noexcept;

}  // namespace shmap::cpu
