// Converts whole vectors of indices to the offsets of single elements in a table.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/indexing/gather.h"

namespace shmap::cpu {

// Writes at[k] = step * index, where index is indices[k * stride], plus `from_end` if it is
// negative. An index outside of [0, last] is clamped, or at[k] is negative, as the mode says. With
// `add`, the offset is added to at[k], and the sum is negative where one of both is. The caller
// makes sure that last >= 0, from_end >= 0, and last * step and the sums fit in 32 bits.
using WordPlacesFn = void (*)(const std::int32_t* indices, std::int64_t stride, std::int64_t count,
                              IndexMode mode, std::int32_t from_end, std::int32_t last,
                              std::int32_t step, std::int32_t* at, bool add);
WordPlacesFn word_places_kernel();

}  // namespace shmap::cpu
