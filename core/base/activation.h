// The functions that a matrix product may apply to its result.
#pragma once
#include <cstdint>

namespace shmap {

enum class Activation : std::uint8_t { none, relu, gelu };  // gelu: the tanh approximation

}  // namespace shmap
