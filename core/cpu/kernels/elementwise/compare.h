// Elementwise comparisons of two operands of one dtype, for one thread, over contiguous elements.
#pragma once
#include <cstdint>

#include "core/cpu/kernels/elementwise/binary.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// A kernel that writes bools (bytes of 0 or 1), for bool, integers and floats: with a NaN every
// comparison but `ne` is false. nullptr for prng_key. `out` may be an operand of one-byte elements.
BinaryFn compare_kernel(CompareOp op, DType dtype);

}  // namespace shmap::cpu
