// Stable sorting of lines of (key, value) pairs, and within a block's shared memory. Keys are
// unsigned integers of 32 or 64 bits, values are u32.
#pragma once
#include <cstdint>

namespace shmap::cuda {

// Lines up to this length are sorted by one block each, without scratch.
inline constexpr std::int64_t kBlockLine = 2048;

struct SortLines {
  int key_bytes = 4;                // or 8
  int bits = 32;                    // low bits of the key to sort by
  std::int64_t lines = 0, len = 0;  // len < 2^32
  void* keys = nullptr;             // [lines, len]; overwritten
  std::uint32_t* values = nullptr;  // [lines, len]
};

// Bytes of scratch that sort_lines() needs; does not depend on addresses.
std::int64_t sort_lines_scratch(const SortLines& s);
// Sorts each line in ascending order, stably. Returns the sorted keys, in s.keys or in scratch;
// null where several long lines were sorted, whose keys are not kept. `stream` is a cudaStream_t.
const void* sort_lines(const SortLines& s, void* scratch, void* stream);

}  // namespace shmap::cuda
