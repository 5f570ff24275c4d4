// wanted: a struct of more than 24 members cannot be an argument, a result or a part of one: put
// some of the members into a struct that is a member
#include <shmap/shmap.h>
using namespace shmap;

struct Many {
  Array a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y;
};

Many mapped(const Mesh& mesh, const Many& x) {
  return shard_map([](Many many) { return many; }, mesh, P("i"), P("i"))(x);
}
