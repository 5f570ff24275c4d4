// Parts of row-major arrays at places that are known on the device only.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cuda {

// Where a part begins along one dim: an integer scalar. A negative one has the extent added, once;
// then it is clamped so that the part lies inside.
struct PartStart {
  const void* data = nullptr;  // device memory; of a literal, host memory, read during the call
  DType dtype = DType::i32;
  bool literal = false;
};

// The part of `whole` that begins at the starts (one a dim) -> out, of extents `part`. `stream` is
// a cudaStream_t here and below. TypeError where a start is no integer.
void dynamic_slice(int itemsize, const Shape& whole, const Shape& part, const PartStart* starts,
                   const void* in, void* out, void* stream);
// update, of extents `part` -> the part of out, of extents `whole`, that begins at the starts.
void dynamic_update_slice(int itemsize, const Shape& whole, const Shape& part,
                          const PartStart* starts, const void* update, void* out, void* stream);

}  // namespace shmap::cuda
