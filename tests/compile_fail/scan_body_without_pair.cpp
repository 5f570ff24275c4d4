// wanted: and it returns a pair of the carry and a y
#include <shmap/shmap.h>
using namespace shmap;

void call(Array x) {
  auto [carry, ys] = scan([](Array c, Array item) { return c + item; }, ones({}), x);
  (void)carry, (void)ys;
}
