// Parts of row-major arrays whose positions are known only on the device.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cuda {

// The begin of a part along one dim: an integer scalar. The extent is added once to a negative
// start; then the start is clamped so that the part lies inside.
struct PartStart {
  const void* data = nullptr;  // device memory; for a literal, host memory that is read during the
                               // call
  DType dtype = DType::i32;
  bool literal = false;
};

// Copies the part of `whole` at the starts (one for each dim) to out, of extents `part`. `stream`
// is a cudaStream_t here and below. TypeError where a start is not an integer.
void dynamic_slice(int itemsize, const Shape& whole, const Shape& part, const PartStart* starts,
                   const void* in, void* out, void* stream);
// Copies update, of extents `part`, to the part of out, of extents `whole`, at the starts.
void dynamic_update_slice(int itemsize, const Shape& whole, const Shape& part,
                          const PartStart* starts, const void* update, void* out, void* stream);

}  // namespace shmap::cuda
