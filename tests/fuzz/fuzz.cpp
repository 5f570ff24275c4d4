#include "tests/fuzz/fuzz.h"

#include <cstdio>
#include <cstdlib>

namespace shmap::fuzz {

void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", property);
  std::abort();
}

}  // namespace shmap::fuzz
