// wanted: and it returns a pair of the carry and a y
#include <shmap/shmap.h>
using namespace shmap;

Array call(Array x) {
  return scan([](Array carry, Array item) { return carry + item; }, ones({}), x).first;
}
