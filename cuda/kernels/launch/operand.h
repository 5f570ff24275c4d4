// The form in which an operand of an elementwise kernel is passed.
#pragma once
#include <cstdint>

namespace shmap::cuda {

struct Operand {
  enum Kind : std::uint8_t {
    whole,    // device memory, one element for each element of the result
    scalar,   // device memory, one element for all
    literal,  // host memory, one element, valid only during the call
  };
  const void* data = nullptr;
  Kind kind = whole;
};

}  // namespace shmap::cuda
