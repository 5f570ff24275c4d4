// How an operand of an elementwise kernel is given.
#pragma once
#include <cstdint>

namespace shmap::cuda {

struct Operand {
  enum Kind : std::uint8_t {
    whole,    // device memory, an element for each of the result's
    scalar,   // device memory, one element, which stands for all
    literal,  // host memory, one element, good only during the call
  };
  const void* data = nullptr;
  Kind kind = whole;
};

}  // namespace shmap::cuda
