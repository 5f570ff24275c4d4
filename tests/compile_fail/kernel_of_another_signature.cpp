// wanted: a kernel takes a `const extend::KernelArgs&` and returns nothing
#include <shmap/shmap.h>
using namespace shmap;

void define(extend::Primitive& p) {
  p.def_cpu_kernel([](extend::KernelArgs&) {});
}
