// wanted: the function returns nothing: it has to return what it computes
#include <shmap/shmap.h>
using namespace shmap;

void show(const Mesh& mesh, Array x) {
  shard_map([](Array block) { debug::print("{}", block); }, mesh, P("i"), P("i"))(x);
}
