// lax.gather: stacks slices of `operand` (core/base/slices.h).
#pragma once
#include <cstdint>

#include "core/base/slices.h"

namespace shmap::cpu {

struct Gather : Slices {
  int itemsize = 0;
  const void* operand = nullptr;
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
// Writes where in the operand slices [begin, end) begin, in the order of gather_slices, to at[0 …
// end - begin), and `filled` for slices that are filled. False, and nothing is written, unless
// every slice is one contiguous run of the operand that a single i32 or i64 index places.
bool find_slices(const Gather& g, std::int64_t begin, std::int64_t end, const void* filled,
                 const void** at);

}  // namespace shmap::cpu
