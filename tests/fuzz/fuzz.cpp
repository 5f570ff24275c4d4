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

}  // namespace shmap::fuzz
