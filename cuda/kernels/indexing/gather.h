// lax.gather, lax.scatter and its kin on a GPU (core/base/slices.h).
#pragma once
#include <cstdint>

#include "core/base/slices.h"

namespace shmap::cuda {

// Writes out, of slices.slices_shape. `fill`: the bits of each item of a slice that is out of
// bounds. `stream` is a cudaStream_t here and below. `operand` null: every item is `fill`, as for a
// literal operand of rank 0.
void gather(const Slices& slices, int itemsize, const void* operand, std::uint64_t fill, void* out,
            void* stream);

// operand[…] op= updates, in place, in row-major order of the dims of `updates` that are not window
// dims, even where windows overlap; f16 and bf16 are rounded after every step. The bits are those
// of the CPU in every run, and `set` leaves the last update. One thread combines all updates of one
// element: slices are sorted by their position, and the first slice at a position takes the others.
// (Sums of integers of 32 and 64 bits do not depend on the order: they use atomic additions.)
struct Scatter {
  ScatterKind op = ScatterKind::add;
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
