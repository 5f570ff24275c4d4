// lax.gather: slices of one size of `operand`; each row of `indices` holds the start of one slice.
// All arrays are row-major and contiguous; the last dim of `indices` is the index vector.
//
// The output's dims: the slice dims that are neither collapsed nor batching, at the positions
// offset_dims, and the dims of `indices` except its last at the remaining positions, in order.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cpu {

// Treatment of a slice that is not inside the operand. clip: moves it inside. fill_or_drop: fills
// it (gather) or drops it (scatter) as a whole.
enum class IndexMode : std::uint8_t { clip, fill_or_drop };

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
  // Adds the extent of its dim to each negative index, once, before `mode` applies.
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
// Gathers slices [begin, end), in row-major order of the dims of `indices` except its last.
// offset_dims must be the last dims of the output, so that slices are contiguous; `out` is where
// slice `begin` goes.
void gather_slices(const Gather& g, std::int64_t begin, std::int64_t end, void* out);

}  // namespace shmap::cpu
