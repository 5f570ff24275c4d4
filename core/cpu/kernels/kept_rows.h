// Which of many index vectors of one entry lie in a part of an array's rows.
#pragma once
#include <cstdint>

namespace shmap::cpu {

inline constexpr std::int64_t kKeptRoom = 16;  // what may be written past the last one

// Of indices[0 … count), to negative ones of which `from_end` is added, and which are then clamped
// to [0, most] where `clips`: those in [first, last) to `rows` and
// where they stand to `at`, in order; both have room for `count` and kKeptRoom more. Returns how
// many. 0 <= first <= last <= most + 1 <= 2^31 - 1, and 0 <= from_end <= most + 1. Nothing branches
// on an index: they are random.
using KeepRowsFn = std::int64_t (*)(const std::int32_t* indices, std::int64_t count,
                                    std::int32_t from_end, bool clips, std::int32_t most,
                                    std::int32_t first, std::int32_t last, std::int32_t* rows,
                                    std::int32_t* at);
KeepRowsFn keep_rows_kernel();

}  // namespace shmap::cpu
