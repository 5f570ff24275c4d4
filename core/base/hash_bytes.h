// hash_bytes: a fast hash of large data, the same in every process. It follows the XXH64 function
// of Yann Collet's xxHash with seed 0, but pads the bytes after the last whole 8-byte word with
// zeros, so that its values are not those of XXH64. Of each 32 bytes, four independent accumulators
// take 8 bytes each, so that no accumulator waits for another. Not secure against deliberate
// collisions.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace shmap {

inline std::uint64_t hash_bytes(const void* data, std::size_t size) noexcept {
  constexpr std::uint64_t k1 = 0x9E3779B185EBCA87u, k2 = 0xC2B2AE3D27D4EB4Fu,
                          k3 = 0x165667B19E3779F9u, k4 = 0x85EBCA77C2B2AE63u,
                          k5 = 0x27D4EB2F165667C5u;
  const auto taken = [](std::uint64_t sum, std::uint64_t word) {
    return std::rotl(sum + word * k2, 31) * k1;
  };
  const auto word_at = [](const unsigned char* from, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, bytes);
    return word;
  };
  const auto* at = static_cast<const unsigned char*>(data);
  std::size_t left = size;
  std::uint64_t sum = k5;
  if (left >= 32) {
    std::uint64_t a = k1 + k2, b = k2, c = 0, d = std::uint64_t{0} - k1;
    for (; left >= 32; left -= 32, at += 32) {
      a = taken(a, word_at(at, 8));
      b = taken(b, word_at(at + 8, 8));
      c = taken(c, word_at(at + 16, 8));
      d = taken(d, word_at(at + 24, 8));
    }
    sum = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (const std::uint64_t one : {a, b, c, d}) sum = (sum ^ taken(0, one)) * k1 + k4;
  }
  sum += size;
  while (left != 0) {
    const std::size_t bytes = left < 8 ? left : 8;
    sum = std::rotl(sum ^ taken(0, word_at(at, bytes)), 27) * k1 + k4;
    at += bytes;
    left -= bytes;
  }
  sum = (sum ^ (sum >> 33)) * k2;
  sum = (sum ^ (sum >> 29)) * k3;
  return sum ^ (sum >> 32);
}

}  // namespace shmap
