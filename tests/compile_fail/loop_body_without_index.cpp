// wanted: the body of a fori_loop is called as body(i, carry)
#include <shmap/shmap.h>
using namespace shmap;

Array call(Array x) {
  return fori_loop(
      0, 3, [](Array carry) { return carry; }, x);
}
