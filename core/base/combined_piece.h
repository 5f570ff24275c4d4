// One of several results that a reduction makes from the same rows of its ranks.
#pragma once
#include <cstdint>

namespace shmap {

struct CombinedPiece {
  void* out;
  std::int64_t first;  // the element of each row at which the piece begins
};

}  // namespace shmap
