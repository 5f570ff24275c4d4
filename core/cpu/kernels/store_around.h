// From which size on results are stored past the caches.
#pragma once
#include <cstdint>

namespace shmap::cpu {

// Bytes of a result. A store past the caches saves reading the lines that it overwrites; a store
// that stays in the caches saves the memory's time altogether, where the result, or the memory that
// it reuses, fits. Read from the system once. Thread-safe.
std::int64_t store_around_bytes() noexcept;

}  // namespace shmap::cpu
