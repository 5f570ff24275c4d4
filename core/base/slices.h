// The slices of gather and scatter, in the form that the kernels of both backends take. The slices
// of a call have one size and begin at positions given by the rows of `indices`. All arrays are
// row-major and contiguous; the last dim of `indices` is the index vector.
//
// The stacked slices are gather's output or scatter's updates. Their dims are the slice dims that
// are neither collapsed nor batching, at the positions offset_dims, and the dims of `indices`
// except its last at the remaining positions, in order.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap {

// What happens to a slice that is not wholly inside the array. clip: the slice is moved inside.
// fill_or_drop: gather fills the whole slice, and scatter drops the whole slice.
enum class IndexMode : std::uint8_t { clip, fill_or_drop };

// X(kind, primitive): how scatter combines an update with the array's element, and the primitive
// (core/ops/scatter.h).
#define SHMAP_SCATTERS(X) \
  X(set, scatter_p)       \
  X(add, scatter_add_p)   \
  X(mul, scatter_mul_p)   \
  X(min, scatter_min_p)   \
  X(max, scatter_max_p)

#define SHMAP_ENUMERATOR(kind, primitive) kind,
enum class ScatterKind : std::uint8_t { SHMAP_SCATTERS(SHMAP_ENUMERATOR) };
#undef SHMAP_ENUMERATOR

// The fields have the names that gather uses; the names that scatter uses are in parentheses.
struct SliceDims {
  IntList offset_dims;           // sorted (update_window_dims)
  IntList collapsed_slice_dims;  // sorted (inserted_window_dims)
  // for each entry of an index vector, the dim of the array that the entry indexes
  // (scatter_dims_to_operand_dims)
  IntList start_index_map;
  IntList operand_batching_dims, indices_batching_dims;
};

struct Slices {
  SliceDims dims;
  Shape operand_shape, indices_shape;
  Shape slice_sizes;        // of every operand dim
  Shape slices_shape;       // of gather's output, or of the updates
  DType index_dtype = i32;  // any integer type
  IndexMode mode = IndexMode::clip;
  // Adds the extent of its dim to each negative index, once, before `mode` applies.
  bool from_end = false;
  const void* indices = nullptr;
};

}  // namespace shmap
