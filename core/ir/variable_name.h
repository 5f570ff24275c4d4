// The names that variables print under.
#pragma once
#include <cstddef>
#include <string>

namespace shmap {

// a, b, … z, ab, ac, …: the letters in order, then pairs of two different ones, then more.
std::string variable_name(std::size_t index);

}  // namespace shmap
