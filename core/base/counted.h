// A number with its noun, for messages and reports.
#pragma once
#include <concepts>
#include <string>

namespace shmap {

// "1 task", "8 tasks"; with `many`, "1 entry", "2 entries".
template <std::integral N>
std::string counted(N n, const std::string& one, const std::string& many = "") {
  return std::to_string(n) + " " + (n == 1 ? one : many.empty() ? one + "s" : many);
}

}  // namespace shmap
