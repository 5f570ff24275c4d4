// Copies of contiguous bytes through the caches.
#pragma once
#include <cstdint>

namespace shmap::cpu {

// memcpy, for runs that may begin a few bytes farther into a page than their source does: on AMD's
// Zen 3 memcpy copies these ten times slower than others.
void copy_run(void* dst, const void* src, std::int64_t bytes);

}  // namespace shmap::cpu
