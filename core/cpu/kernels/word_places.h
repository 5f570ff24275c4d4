// Where single elements are in a table, of whole vectors of indices at a time.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/gather.h"

namespace shmap::cpu {

// at[k] = step * indices[k], clamped to [0, last] first or, by the mode, negative where the index
// is not in it; `from_end` is added to negative indices before that. 0 <= last, 0 <= from_end, and
// last * step fits.
using WordPlacesFn = void (*)(const std::int32_t* indices, std::int64_t count, IndexMode mode,
                              std::int32_t from_end, std::int32_t last, std::int32_t step,
                              std::int32_t* at);
WordPlacesFn word_places_kernel();

}  // namespace shmap::cpu
