// lax.gather, lax.scatter and its kin on a GPU. All arrays are row-major and contiguous; the last
// dim of `indices` is the index vector.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cuda {

// The layout of slices in the array that they are gathered from or scattered to, with the names of
// gather (of scatter in parentheses).
struct SliceDims {
  IntList offset_dims;      // sorted (update_window_dims)
  IntList collapsed_dims;   // sorted (inserted_window_dims)
  IntList start_index_map;  // the array's dim of each entry of an index vector
  IntList operand_batching_dims, indices_batching_dims;
};

struct Slices {
  SliceDims dims;
  Shape operand_shape, indices_shape;
  Shape slice_sizes;               // of every operand dim
  Shape slices_shape;              // of gather's output, or of the updates
  DType index_dtype = DType::i32;  // any integer type
  bool clip = false;  // a slice out of bounds is moved inside; else it is filled or dropped
  const void* indices = nullptr;
};

// Writes out, of slices_shape. `fill`: the bits of each item of a slice that is out of bounds.
// `stream` is a cudaStream_t here and below. `operand` null: every item is `fill`, as for a literal
// operand of rank 0.
void gather(const Slices& slices, int itemsize, const void* operand, std::uint64_t fill, void* out,
            void* stream);

enum class ScatterOp : std::uint8_t { set, add, mul, min, max };

// operand[…] op= updates, in place, in row-major order of the dims of `updates` that are not window
// dims, even where windows overlap; f16 and bf16 are rounded after every step. The bits are those
// of the CPU in every run, and `set` leaves the last update. One thread combines all updates of one
// element: slices are sorted by their position, and the first slice at a position takes the others.
// (Sums of integers of 32 and 64 bits do not depend on the order: they use atomic additions.)
struct Scatter {
  ScatterOp op = ScatterOp::add;
  Slices slices;
  DType dtype = DType::f32;  // of operand and updates; bool_ adds as "or", multiplies as "and"
  void* operand = nullptr;
  const void* updates = nullptr;  // null: `literal` holds the only one
  std::uint64_t literal = 0;
};
// Bytes of scratch that scatter() needs; does not depend on addresses.
std::int64_t scatter_scratch(const Scatter& s);
void scatter(const Scatter& s, void* scratch, void* stream);

}  // namespace shmap::cuda
