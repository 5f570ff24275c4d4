// Repeats the value of each row along the row, for one thread.
#pragma once
#include <cstdint>

namespace shmap::cpu {

// out[r, c] = in[r] for r < rows, c < cols; elements of `itemsize` bytes (1, 2, 4 or 8). `out` must
// not overlap `in`.
using ExpandFn = void (*)(const void* in, void* out, std::int64_t rows, std::int64_t cols);
ExpandFn expand_kernel(int itemsize);

}  // namespace shmap::cpu
