// wanted: x one item of xs, and none_t where xs is `none`
#include <shmap/shmap.h>
using namespace shmap;

void call(Array x) {
  auto trip = [](Array carry, Array item) { return std::pair{carry, item}; };
  scan(trip, x, none, {.length = 3});
}
