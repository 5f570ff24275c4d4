// Text from outside, as messages quote it.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace shmap {

// As much of it as a message quotes, with ? for what is not printable ASCII; "…" where it goes on.
inline std::string printable(std::string_view text, std::size_t most = 80) {
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return text.size() > most ? out + "…" : out;
}

}  // namespace shmap
