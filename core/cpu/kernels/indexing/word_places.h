// Converts whole vectors of indices to the offsets of single elements in a table.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/indexing/gather.h"

namespace shmap::cpu {

// Writes at[k] = step * index, where index is indices[k], plus `from_end` if it is negative. An
// index outside of [0, last] is clamped, or at[k] is negative, as the mode says. The caller makes
// sure that last >= 0, from_end >= 0, and last * step fits in 32 bits.
using WordPlacesFn = void (*)(const std::int32_t* indices, std::int64_t count, IndexMode mode,
                              std::int32_t from_end, std::int32_t last, std::int32_t step,
                              std::int32_t* at);
WordPlacesFn word_places_kernel();

}  // namespace shmap::cpu
