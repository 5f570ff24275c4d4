// lax.gather, lax.scatter and its kin on a GPU. All arrays are row-major and contiguous; the last
// dim of `indices` is the index vector.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::cuda {

// How slices lie in the array that they are taken from or added to, in the names of gather; those
// of scatter are given in parentheses.
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
  Shape slices_shape;              // of the gather's output, or of the updates
  DType index_dtype = DType::i32;  // any integer type
  bool clip = false;  // a slice that leaves the operand is moved inside; else filled or dropped
  const void* indices = nullptr;
};

// out, of slices_shape. `fill`: the bits of an item of a slice that leaves the operand. `stream` is
// a cudaStream_t here and below. `operand` null: every item is `fill`, as of an operand of rank 0
// that is a literal.
void gather(const Slices& slices, int itemsize, const void* operand, std::uint64_t fill, void* out,
            void* stream);

enum class ScatterOp : std::uint8_t { set, add, mul, min, max };

// operand[…] op= updates, in place: in row-major order of the dims of `updates` that are no
// window's, also where windows overlap, and f16 and bf16 rounded after every step: the very bits of
// the CPU, on every run, and set leaves the last. What goes to one element is combined by one
// thread: slices are sorted by where they go, and the first of equal ones takes in the others. (The
// order of sums of integers of 32 and 64 bits cannot be seen: they are added atomically.)
struct Scatter {
  ScatterOp op = ScatterOp::add;
  Slices slices;
  DType dtype = DType::f32;  // of operand and updates; bool_ adds as "or", multiplies as "and"
  void* operand = nullptr;
  const void* updates = nullptr;  // null: `literal` holds the only one
  std::uint64_t literal = 0;
};
// Bytes of scratch that scatter() wants; addresses are not looked at.
std::int64_t scatter_scratch(const Scatter& s);
void scatter(const Scatter& s, void* scratch, void* stream);

}  // namespace shmap::cuda
