// Quotes text from outside the library in messages.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace shmap {

// At most `most` characters of the text; ? replaces characters that are not printable ASCII; "…" if
// it was cut.
inline std::string printable(std::string_view text, std::size_t most = 80) {
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return text.size() > most ? out + "…" : out;
}

}  // namespace shmap
