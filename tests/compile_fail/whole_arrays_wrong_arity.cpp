// wanted: the function cannot be called with these arguments
#include <shmap/shmap.h>
using namespace shmap;

void call(const Mesh& mesh, Array x) {
  jit([](Array a, Array b) { return a + b; }, mesh, P("i"), P())(x);
}
