// Kernels of which cumulative operations consist.
#pragma once
#include <cstdint>

#include "core/base/reduction_ops.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// Writes the running results of in[n] to out[n], from the first element on, or from the last if
// `reverse`. Continues from the result *before unless it is null. `out` may be `in`.
using LineScanFn = void (*)(const void* in, void* out, std::int64_t n, bool reverse,
                            const void* before);
// For integers, and for bool as bytes; nullptr for floats and if the dtype has no such op.
LineScanFn line_scan_kernel(Cumulative op, DType dtype);

// Writes the running results of each row of in[kScanRows, len], len >= 1, in f64 and from the row's
// first element on, or from its last if `reverse`. `out` may be `in`.
constexpr int kScanRows = 8;
using RowsScanFn = void (*)(const float* in, float* out, std::int64_t len, bool reverse);
// For cumsum and cumprod; nullptr for others, and without explicit vectors.
RowsScanFn rows_scan_kernel(Cumulative op);

}  // namespace shmap::cpu
