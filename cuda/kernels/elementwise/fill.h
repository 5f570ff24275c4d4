// Constant and linear contents, enqueued on a stream.
#pragma once
#include <cstdint>

#include "cuda/kernels/launch/operand.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

// Writes n copies of the element at `value`, a scalar or a literal, of `itemsize` bytes (1, 2, 4 or
// 8).
void fill(void* out, Operand value, int itemsize, std::int64_t n, void* stream);

// Writes the array [outer, n, inner] whose elements are their index along the second dim: reduced
// to an integer dtype modulo its width, or rounded once to a float dtype.
void iota(DType dtype, void* out, std::int64_t outer, std::int64_t n, std::int64_t inner,
          void* stream);

}  // namespace shmap::cuda
