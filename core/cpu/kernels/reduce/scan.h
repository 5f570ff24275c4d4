// Cumulative operations, for one thread.
#pragma once
#include <cstdint>

#include "core/base/reduction_ops.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// in[outer, len, inner], row-major -> out of the same shape: running results along `len`, from its
// end if `reverse`. `out` may be `in`, and must not overlap it otherwise.
using ScanFn = void (*)(const void* in, void* out, std::int64_t outer, std::int64_t len,
                        std::int64_t inner, bool reverse);

// The kernel of `op` for `dtype`; nullptr where the dtype has no such op.
ScanFn scan_kernel(Cumulative op, DType dtype);

// Scans one line by several threads: writes elements [begin, end) of the result of scan_kernel for
// in[1, len, 1], with the same bits. Reads all elements that come before them, so that `out` must
// not be `in`. Only for integers: scans_ranges(op, dtype).
bool scans_ranges(Cumulative op, DType dtype);
void scan_range(Cumulative op, DType dtype, const void* in, void* out, std::int64_t len,
                bool reverse, std::int64_t begin, std::int64_t end);

}  // namespace shmap::cpu
