#include "core/base/nearest_name.h"

#include <algorithm>
#include <cctype>

namespace shmap {

namespace {

std::string in_lower_case(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> line(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) line[j] = static_cast<int>(j);
  for (std::size_t i = 0; i < a.size(); ++i) {
    int diagonal = line[0];
    line[0] = static_cast<int>(i) + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const int up = line[j + 1];
      line[j + 1] = std::min({up + 1, line[j] + 1, diagonal + (a[i] != b[j] ? 1 : 0)});
      diagonal = up;
    }
  }
  return line[b.size()];
}

std::string did_you_mean(std::string_view given, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 80;  // longer texts are not mistyped names
  if (given.empty() || given.size() > kLongest) return std::string();
  const std::string wanted = in_lower_case(given);
  const std::string* nearest = nullptr;
  int least = 0;
  for (const std::string& name : known) {
    if (name.empty() || name.size() > kLongest) continue;
    const std::string candidate = in_lower_case(name);
    int distance = edit_distance(wanted, candidate);
    const auto shorter = static_cast<int>(std::min(wanted.size(), candidate.size()));
    const auto longer = static_cast<int>(std::max(wanted.size(), candidate.size()));
    const bool begins =
        shorter >= 2 && (wanted.starts_with(candidate) || candidate.starts_with(wanted));
    if (begins) distance = std::min(distance, 1);
    if (distance > (longer + 2) / 3 || distance >= shorter) continue;
    if (nearest == nullptr || distance < least) {
      nearest = &name;
      least = distance;
    }
  }
  return nearest ? " (did you mean '" + *nearest + "'?)" : std::string();
}

}  // namespace shmap
