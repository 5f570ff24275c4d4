// The kernels of which cumulative operations are built.
#pragma once
#include <cstdint>

#include "core/base/reduction_ops.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// in[n] -> out[n]: running results from the first element on, or from the last if `reverse`,
// continued from the result *before unless it is null. `out` may be `in`.
using LineScanFn = void (*)(const void* in, void* out, std::int64_t n, bool reverse,
                            const void* before);
// Of integers, and of bool as bytes; nullptr for floats and where the dtype has no such op.
LineScanFn line_scan_kernel(Cumulative op, DType dtype);

// in[kScanRows, len] -> out[kScanRows, len], len >= 1: running results of each row in f64, from its
// first element on, or from its last if `reverse`. `out` may be `in`.
constexpr int kScanRows = 8;
using RowsScanFn = void (*)(const float* in, float* out, std::int64_t len, bool reverse);
// For cumsum and cumprod; nullptr for the others, and where there are no vectors.
RowsScanFn rows_scan_kernel(Cumulative op);

}  // namespace shmap::cpu
