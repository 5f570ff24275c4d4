// The only use of CUB: stable sorting of pairs by bits of an unsigned key.
#pragma once
#include <cstddef>
#include <cstdint>

namespace shmap::cuda {

// n pairs in keys[0] and values[0]; keys[1] and values[1] are separate memory of the same size, and
// all four are overwritten. key_bytes is 4 or 8.
struct RadixSort {
  int key_bytes = 4;
  int bits = 32;       // low bits of the key to sort by
  std::int64_t n = 0;  // less than 2^32
  void* keys[2] = {};
  std::uint32_t* values[2] = {};
};

// Bytes of `temporary` that radix_sort() needs; depends on key_bytes, bits and n alone.
std::size_t radix_sort_temporary(const RadixSort& s);
// Sorts in ascending order; returns which of the two keys and values hold the result. `stream` is a
// cudaStream_t.
int radix_sort(const RadixSort& s, void* temporary, std::size_t bytes, void* stream);

}  // namespace shmap::cuda
