// The hash threefry2x32, for one thread: 20 rounds on two words.
#pragma once
#include <cstddef>
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

// From this many bytes on, u32 and wider elements may be written past the caches (`around`).
inline constexpr std::int64_t kThreefryAroundBytes = std::int64_t{8} << 20;

// Writes to out[i] an element of dtype `to` from words 0 and 1 of the hash of first + i: u8 and u16
// are the low bits of word 0 ^ word 1, u32 is word 0 ^ word 1, u64 is word 0 << 32 | word 1, and a
// prng_key is word 0, then word 1. The high word of first + i is the first word to hash. `key`: two
// words.
void threefry_bits(DType to, const std::uint32_t* key, std::uint64_t first, void* out,
                   std::int64_t n, bool around = false);

// One element for each of `n` keys; the steps are in bytes.
struct ThreefryKeys {
  const std::byte* key;  // two words each, of any alignment
  std::int64_t key_step;
  const std::byte* first;  // an i64 each, or null, which means 0
  std::int64_t first_step;
  std::byte* out;
  std::int64_t out_step;
  std::int64_t n;
};
// Writes for key i the element that threefry_bits writes for the count first[i] + offset. Vectors
// hold the words of several keys, while those of threefry_bits hold several counts of one key.
void threefry_each(DType to, const ThreefryKeys& keys, std::uint64_t offset);
// Where each key gives fewer elements than this, threefry_each is faster than threefry_bits.
inline constexpr std::int64_t kThreefryFew = 32;

// Writes the hash of x0[i] and x1[i] under the keys k0[i] and k1[i] for i < n. A set bit of `one`
// means that the operand (bit 0: k0) is a single number. Results may be the operands' memory.
void threefry_pairs(const std::uint32_t* k0, const std::uint32_t* k1, const std::uint32_t* x0,
                    const std::uint32_t* x1, unsigned one, std::uint32_t* out0, std::uint32_t* out1,
                    std::int64_t n);

}  // namespace shmap::cpu
