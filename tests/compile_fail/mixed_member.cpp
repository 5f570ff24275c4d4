// wanted: a struct's member mixes arrays with host values or abstract types in one container
#include <shmap/shmap.h>
using namespace shmap;

struct Layer {
  std::pair<Array, int> weights_and_width;
};
Array call(const Layer& layer) {
  return jit([](Layer l) { return l.weights_and_width.first; })(layer);
}
