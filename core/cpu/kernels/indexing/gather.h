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
// Gathers slices [begin, end), in row-major order of the dims of `indices` except its last. `out`
// is the destination of slice `begin`. offset_dims must be the last dims of the output, so that
// slices are contiguous.
void gather_slices(const Gather& g, std::int64_t begin, std::int64_t end, void* out);
// Writes the addresses of slices [begin, end) in the operand to at[0 … end - begin), in the order
// of gather_slices; writes `filled` for slices that are filled. Returns false, and writes nothing,
// unless every slice is one contiguous run of the operand that a single i32 or i64 index selects.
bool find_slices(const Gather& g, std::int64_t begin, std::int64_t end, const void* filled,
                 const void** at);

}  // namespace shmap::cpu
