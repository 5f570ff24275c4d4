#include "tests/fuzz/fuzz.h"

#include <cstdio>
#include <cstdlib>

namespace shmap::fuzz {

void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", property);
  std::abort();
}

void require_one_line(std::string_view message) {
  require(message.size() > 10 && message.size() < 1000, "a message is neither empty nor endless");
  for (char c : message)
    require(static_cast<unsigned char>(c) >= 0x20, "a message is one line of text");
}

void require_printable(std::string_view message, bool lines) {
  require(message.size() > 10 && message.size() < 4000, "a message is neither empty nor endless");
  constexpr std::string_view kDots = "…";
  std::size_t i = 0;
  while (i < message.size()) {
    const char c = message[i];
    if (c == kDots[0] && message.substr(i, kDots.size()) == kDots) {
      i += kDots.size();
    } else {
      require((c >= ' ' && c <= '~') || (lines && c == '\n'), "a message is printable text");
      ++i;
    }
  }
}

}  // namespace shmap::fuzz
