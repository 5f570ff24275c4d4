// The reductions to the index of the largest or of the smallest element.
#pragma once
#include <cstdint>

namespace shmap {

enum class ArgReduction : std::uint8_t { argmax, argmin };

}  // namespace shmap
