// The shape of operations along one dim: sorts, cumulative operations, argmax, iota.
#pragma once
#include <cstdint>

#include "shmap/shape.h"

namespace shmap {

// A row-major array as outer * inner lines of `length` elements, which are `inner` elements apart.
struct Lines {
  std::int64_t outer = 1, length = 0, inner = 1;

  // The lines along `dim` (not negative) of an array of that shape.
  Lines(const Shape& dims, std::int64_t dim) {
    const auto at = static_cast<std::size_t>(dim);
    for (std::size_t d = 0; d < at; ++d) outer *= dims[d];
    length = dims[at];
    for (std::size_t d = at + 1; d < dims.size(); ++d) inner *= dims[d];
  }
  bool empty() const { return outer * length * inner == 0; }
};

}  // namespace shmap
