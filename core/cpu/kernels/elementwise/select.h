// Elementwise choice, for one thread, over contiguous elements.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

// out[i] = pred[i] ? on_true[i] : on_false[i] for i < n; `pred` holds bools (any byte but 0 is
// true), the others elements of `itemsize` bytes (1, 2, 4 or 8). An operand marked scalar is one
// element, used for each i. `out` may be on_true or on_false (or pred, where itemsize is 1), and
// must not overlap them otherwise.
void select(const void* pred, bool pred_scalar, const void* on_true, bool true_scalar,
            const void* on_false, bool false_scalar, void* out, int itemsize, std::int64_t n);

// out[i] = min(max(x[i], low[i]), high[i]) for i < n: a NaN in any of them gives NaN, and `high`
// wins where low > high. dtype: bool, integers, floats. `out` may be any operand that is not
// scalar, and must not overlap them otherwise.
void clamp(DType dtype, const void* low, bool low_scalar, const void* x, const void* high,
           bool high_scalar, void* out, std::int64_t n);

}  // namespace shmap::cpu
