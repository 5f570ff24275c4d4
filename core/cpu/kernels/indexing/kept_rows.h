// Selects the index vectors (of one entry) that refer to a given range of an array's rows.
#pragma once
#include <cstdint>

namespace shmap::cpu {

inline constexpr std::int64_t kKeptRoom = 16;  // elements that may be written past the last result

// Finds the elements of indices[0 … count) that are in [first, last). Writes each such row to
// `rows` and its position in `indices` to `at`, in order. Before that, `from_end` is added to
// negative indices, and with `clips` indices are clamped to [0, most]. `rows` and `at` have room
// for count + kKeptRoom elements. Returns the number of indices found. 0 <= first <= last <= most +
// 1 <= 2^31 - 1, and 0 <= from_end <= most + 1. No branch depends on an index, because indices are
// unpredictable.
using KeepRowsFn = std::int64_t (*)(const std::int32_t* indices, std::int64_t count,
                                    std::int32_t from_end, bool clips, std::int32_t most,
                                    std::int32_t first, std::int32_t last, std::int32_t* rows,
                                    std::int32_t* at);
KeepRowsFn keep_rows_kernel();

}  // namespace shmap::cpu
