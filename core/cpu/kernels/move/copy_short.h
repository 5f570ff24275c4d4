// Copies that distribute items to a few rows, interleave items of a few rows, take items at a small
// step, or reverse items. Their runs are single items on one side, though the few rows together are
// contiguous (channels last to first and back, stacks along the last dim, repeats, every second
// item, flips). Whole vectors are loaded, reordered and stored.
#pragma once
#include <cstdint>

namespace shmap::cpu {

inline constexpr int kShortRows = 4;  // a kernel handles 2 … kShortRows rows

// Items have 1, 2, 4 or 8 bytes and need no alignment; rows must not overlap the source.
// rows[j][i] = src[i * count + j], j < count: n items to each row.
using DealFn = void (*)(const char* src, char* const* rows, std::int64_t n);
// dst[i * count + j] = rows[j][i]; two rows may be the same one.
using WeaveFn = void (*)(const char* const* rows, char* dst, std::int64_t n);
// dst[i] = src[i * step].
using PickFn = void (*)(const char* src, char* dst, std::int64_t n);
// dst[i] = src[n - 1 - i].
using TurnFn = void (*)(const char* src, char* dst, std::int64_t n);

// nullptr where there is no kernel for items of that size or that number of rows.
DealFn deal_kernel(int itemsize, std::int64_t count);
WeaveFn weave_kernel(int itemsize, std::int64_t count);
// nullptr where there is no kernel for items of that size, or that step (2 … kShortRows).
PickFn pick_kernel(int itemsize, std::int64_t step);
TurnFn turn_kernel(int itemsize);

}  // namespace shmap::cpu
