// The elements [start, stop) of one dim of an array.
#pragma once
#include <cstdint>

namespace shmap {

struct Slice {
  std::int64_t start = 0, stop = 0;
  friend constexpr bool operator==(const Slice&, const Slice&) = default;
};

}  // namespace shmap
