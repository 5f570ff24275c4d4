// wanted: a struct with a base class cannot be an argument, a result or a part of one: make the
// base a member
#include <shmap/shmap.h>
using namespace shmap;

struct Base {
  Array w;
};
struct Derived : Base {
  Array b;
};

Derived mapped(const Mesh& mesh, const Derived& x) {
  return shard_map([](Derived d) { return d; }, mesh, P("i"), P("i"))(x);
}
