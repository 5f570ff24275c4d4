#include "core/cpu/ops/random_block.h"

#include <algorithm>

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

}  // namespace shmap::cpu
