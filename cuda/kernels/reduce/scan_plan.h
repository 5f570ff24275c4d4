// The assignment of a scan to blocks and threads; depends on its extents alone.
#pragma once
#include <cstdint>

#include "cuda/kernels/embedded/scalar.h"
#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {

// A line lies along `len`, its items `inner` apart; each line is cut into parts of `part_len`
// items. With `across`, a thread handles a part, and neighbouring threads handle adjacent lines;
// otherwise a block handles a part.
struct ScanPlan {
  std::int64_t lines, len, inner;
  std::int64_t reverse, across;  // 0 or 1
  std::int64_t parts = 1, part_len;

  static constexpr int kItems = 4;  // items that a thread handles at a time along a line
  static constexpr std::int64_t kTile = kThreads * kItems;
  static constexpr std::int64_t kMostParts = 512;  // one thread passes over the totals of so many
                                                   // parts

  ScanPlan(std::int64_t outer, std::int64_t length, std::int64_t inner_extent, bool from_end)
      : lines(outer * inner_extent),
        len(length),
        inner(inner_extent),
        reverse(from_end ? 1 : 0),
        across(inner_extent >= 16 ? 1 : 0),
        part_len(length) {
    // Enough threads, or blocks, to fill any GPU, as long as each part has work.
    const std::int64_t wanted = across != 0 ? 1 << 17 : 1 << 9;
    const std::int64_t least = across != 0 ? 32 : 4 * kTile;
    if (lines >= wanted || len < 2 * least) return;
    parts = (wanted + lines - 1) / lines;
    if (parts > kMostParts) parts = kMostParts;
    if (parts > len / least) parts = len / least;
    part_len = (len + parts - 1) / parts;
    if (across == 0) part_len = (part_len + kTile - 1) / kTile * kTile;
    parts = (len + part_len - 1) / part_len;
  }

  std::int64_t totals() const { return parts > 1 ? lines * parts : 0; }

  // The offset of item i of a line, counted from the end at which the scan starts.
  SHMAP_FN std::int64_t at(std::int64_t line, std::int64_t i) const {
    const std::int64_t outer = line / inner;
    return (outer * len + (reverse != 0 ? len - 1 - i : i)) * inner + line - outer * inner;
  }
};

}  // namespace shmap::cuda
