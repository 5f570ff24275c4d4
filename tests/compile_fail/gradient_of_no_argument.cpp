// wanted: there are fewer arguments than that
#include <shmap/shmap.h>
using namespace shmap;

Array call(Array x) {
  return grad<1>([](Array a) { return sum(a); })(x);
}
