// wanted: an argument has a type that no traced function takes
#include <shmap/shmap.h>
using namespace shmap;

struct Handle {
  explicit Handle(int* p) : pointer(p) {}
  int* pointer;
};
Array call(const Handle& handle) {
  return jit([](const Handle&) { return Array(1.f); })(handle);
}
