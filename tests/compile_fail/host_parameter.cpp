// wanted: the function cannot be called with these arguments
#include <shmap/shmap.h>
using namespace shmap;

struct Layer {
  Array w;
};
Array call(const Layer& layer) {
  return jit([](Layer l, int n) { return l.w * n; })(layer, 3);
}
