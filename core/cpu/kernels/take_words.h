// Single elements of 4 bytes, taken from anywhere in a table by whole vectors of indices.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/gather.h"

namespace shmap::cpu {

struct TakeWords {
  // at[k] = step * indices[k], clamped to [0, last] first or, by the mode, negative where the index
  // is not in it. 0 <= last, and last * step fits.
  void (*place)(const std::int32_t* indices, std::int64_t count, IndexMode mode, std::int32_t last,
                std::int32_t step, std::int32_t* at);
  // out[k] = table[at[k]], or `fill` where at[k] is negative. The table has at least one element.
  void (*take)(const std::uint32_t* table, const std::int32_t* at, std::int64_t count,
               std::uint32_t fill, std::uint32_t* out);
};
TakeWords take_words_kernels();

}  // namespace shmap::cpu
