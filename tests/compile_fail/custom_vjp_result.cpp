// wanted: the first rule of a custom_vjp returns a y of the type that the function returns
#include <shmap/shmap.h>
using namespace shmap;

Array call(Array x) {
  auto f =
      custom_vjp([](Array a) { return sin(a); },
                 [](Array a) {
                   return std::pair{std::vector{sin(a)}, a};
                 },
                 [](Array a, std::vector<Array> y_bar) { return std::tuple{cos(a) * y_bar[0]}; });
  return f(x);
}
