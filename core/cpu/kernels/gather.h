// lax.gather: slices of `operand` of one size, each at the start that one row of `indices` holds.
// All arrays are row-major and contiguous; the last dim of `indices` is the index vector.
//
// The output's dims are the slice dims that are neither collapsed nor batching, at the positions
// offset_dims names, and the dims of `indices` but its last in the others, in order.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cpu {

// What happens to a slice that leaves the operand: moved inside; filled (by gather) or dropped (by
// scatter) as a whole; or the caller promises that it does not happen, and nothing is checked.
enum class IndexMode : std::uint8_t { clip, fill_or_drop, promise_in_bounds };

struct GatherDims {
  IntList offset_dims;           // sorted
  IntList collapsed_slice_dims;  // sorted
  IntList start_index_map;       // the operand dim of each entry of an index vector
  IntList operand_batching_dims, indices_batching_dims;
};

struct Gather {
  GatherDims dims;
  Shape operand_shape, indices_shape, slice_sizes;
  DType index_dtype = i32;  // any integer type
  IndexMode mode = IndexMode::clip;
  // Of a negative index the extent of its dim is added, once, before `mode` looks at it.
  bool from_end = false;
  int itemsize = 0;
  const void* operand = nullptr;
  const void* indices = nullptr;
  const void* fill = nullptr;  // one item; read in fill_or_drop mode only
  void* out = nullptr;
};

Shape gather_shape(const Gather& g);  // of the output

void gather(const Gather& g);
int gather_parts(const Gather& g, int workers);
void gather_part(const Gather& g, int part, int parts);
// Slices [begin, end), in row-major order of the dims of `indices` but its last. offset_dims are
// the last dims of the output, so that slices follow one another; `out` is where the first goes.
void gather_slices(const Gather& g, std::int64_t begin, std::int64_t end, void* out);

}  // namespace shmap::cpu
