// The searches for an extreme element.
#pragma once
#include <cstdint>

namespace shmap {

enum class ArgReduction : std::uint8_t { argmax, argmin };

}  // namespace shmap
