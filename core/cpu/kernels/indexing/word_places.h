// Converts whole vectors of indices to the offsets of single elements in a table.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/indexing/gather.h"

namespace shmap::cpu {

// Writes at[k] = step * indices[k]. Before that, `from_end` is added to negative indices, and an
// index outside of [0, last] is clamped or gives a negative at[k], depending on the mode. 0 <=
// last, 0 <= from_end, and last * step fits.
using WordPlacesFn = void (*)(const std::int32_t* indices, std::int64_t count, IndexMode mode,
                              std::int32_t from_end, std::int32_t last, std::int32_t step,
                              std::int32_t* at);
WordPlacesFn word_places_kernel();

}  // namespace shmap::cpu
