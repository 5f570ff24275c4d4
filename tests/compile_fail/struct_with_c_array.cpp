// wanted: a struct with a C array member cannot be an argument, a result or a part of one: make the
// member a std::array
#include <shmap/shmap.h>
using namespace shmap;

struct Layer {
  Array w;
  float scales[3];
  std::vector<Array> extra;
};

Layer mapped(const Mesh& mesh, const Layer& x) {
  return shard_map([](Layer layer) { return layer; }, mesh, P("i"), P("i"))(x);
}
