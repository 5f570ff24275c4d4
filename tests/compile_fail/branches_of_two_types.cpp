// wanted: the branches of a cond return values of one type
#include <shmap/shmap.h>
using namespace shmap;

Array call(Array x) {
  return cond(
      true, [](Array a) { return a; },
      [](Array a) {
        return std::pair{a, a};
      },
      x);
}
