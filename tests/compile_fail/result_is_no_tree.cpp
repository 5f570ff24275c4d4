// wanted: the function returns what cannot be traced
#include <shmap/shmap.h>
using namespace shmap;

void call(Array x) {
  vmap([](Array a) { return std::pair{a, std::shared_ptr<int>()}; })(x);
}
