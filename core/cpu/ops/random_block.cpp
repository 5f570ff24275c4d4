#include "core/cpu/ops/random_block.h"

#include <algorithm>
#include <cstring>

namespace shmap::cpu {

void threefry_block(DType to, const std::uint32_t* key, const RandomBlock& block,
                    std::int64_t first, std::int64_t at, std::byte* out, std::int64_t n,
                    int itemsize, bool around) {
  const std::int64_t run = block.run();
  for (const std::int64_t end = at + n; at < end;) {
    const std::int64_t piece = std::min(end - at, run - at % run);
    threefry_bits(to, key, static_cast<std::uint64_t>(first + block.index(at)), out, piece, around);
    out += piece * itemsize;
    at += piece;
  }
}

void threefry_blocks(DType to, ThreefryKeys keys, const RandomBlock& block, std::int64_t at,
                     std::int64_t n, int itemsize, bool around) {
  constexpr std::int64_t kTogether = 256;  // keys whose elements stay in the L1 cache
  constexpr std::int64_t kFewKeys = 4;
  if (n < kThreefryFew && keys.n >= kFewKeys) {
    for (std::int64_t left = keys.n; left > 0; left -= kTogether) {
      ThreefryKeys some = keys;
      some.n = std::min(left, kTogether);
      for (std::int64_t j = 0; j < n; ++j, some.out += itemsize)
        threefry_each(to, some, static_cast<std::uint64_t>(block.index(at + j)));
      keys.key += kTogether * keys.key_step;
      if (keys.first != nullptr) keys.first += kTogether * keys.first_step;
      keys.out += kTogether * keys.out_step;
    }
    return;
  }
  for (std::int64_t k = 0; k < keys.n; ++k) {
    std::uint32_t key[2];
    std::int64_t first = 0;
    std::memcpy(key, keys.key + k * keys.key_step, sizeof key);
    if (keys.first != nullptr) std::memcpy(&first, keys.first + k * keys.first_step, sizeof first);
    threefry_block(to, key, block, first, at, keys.out + k * keys.out_step, n, itemsize, around);
  }
}

}  // namespace shmap::cpu
