// The hash threefry2x32, for one thread: 20 rounds on two words.
#pragma once
#include <cstdint>

namespace shmap::cpu {

// What is made of the two words of each hash, word 0 and word 1, in elements of 1, 2, 4 or 8 bytes.
enum class ThreefryOut : std::uint8_t {
  u8,     // of word 0 ^ word 1, the low bits
  u16,    // likewise
  u32,    // word 0 ^ word 1
  u64,    // word 0 << 32 | word 1
  words,  // word 0, then word 1: a key
};

// From this many bytes on, u32 and wider elements may be written past the caches (`around`).
inline constexpr std::int64_t kThreefryAroundBytes = std::int64_t{8} << 20;

// out[i] of the hash of first + i, whose high word is the first one of the count. `key`: two words.
void threefry_bits(ThreefryOut to, const std::uint32_t* key, std::uint64_t first, void* out,
                   std::int64_t n, bool around = false);

// The hash of x0[i] and x1[i] under the keys k0[i] and k1[i], n times; where `one` has the bit of
// an operand (k0 first) that is a single number. Results may be the operands' memory.
void threefry_pairs(const std::uint32_t* k0, const std::uint32_t* k1, const std::uint32_t* x0,
                    const std::uint32_t* x1, unsigned one, std::uint32_t* out0, std::uint32_t* out1,
                    std::int64_t n);

}  // namespace shmap::cpu
