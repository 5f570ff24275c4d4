// Slices of row-major arrays at positions that are known only on the device.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cuda {

// The start of a slice along one dim: an integer scalar. The extent is added once to a negative
// start; then the start is clamped so that the slice is in range.
struct SliceStart {
  const void* data = nullptr;  // device memory; for a literal, host memory that is read during the
                               // call
  DType dtype = DType::i32;
  bool literal = false;
};

// Copies the slice of `whole` at the starts (one for each dim) to `out`, of extents `part`.
// `stream` is a cudaStream_t here and below. TypeError if a start is not an integer.
void dynamic_slice(int itemsize, const Shape& whole, const Shape& part, const SliceStart* starts,
                   const void* in, void* out, void* stream);
// Copies `update`, of extents `part`, into the slice of `out`, of extents `whole`, at the starts.
void dynamic_update_slice(int itemsize, const Shape& whole, const Shape& part,
                          const SliceStart* starts, const void* update, void* out, void* stream);

}  // namespace shmap::cuda
