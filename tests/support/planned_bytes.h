// The bytes of memory in a plan's text.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

namespace shmap::test {

// The largest of the plan's memory spaces, in bytes; -1 where the text names none.
inline std::int64_t planned_bytes(const std::string& plan) {
  std::int64_t most = -1;
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("  memory of ");
    if (at == std::string::npos) continue;
    most = std::max(most, std::int64_t{std::stoll(line.substr(line.find(": ", at) + 2))});
  }
  return most;
}

}  // namespace shmap::test
