// CombinedPiece: where DeviceOps::combine_pieces (core/runtime/device_ops.h) writes one piece of
// its result. combine_pieces reduces rows element by element over the ranks, and can write several
// pieces, each from its own range of the elements of a row.
#pragma once
#include <cstdint>

namespace shmap {

struct CombinedPiece {
  void* out;
  std::int64_t first;  // the element of each row at which the piece begins
};

}  // namespace shmap
