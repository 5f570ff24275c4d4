// A plugin that a program loads while it runs. The library is one of its dependencies.
#include <shmap/shmap.h>

#include <cstdio>
#include <exception>

// The sum of a product of 64 × 64 ones over eight devices, three times under jit; -1 for an error.
extern "C" int plugin_run() {
  try {
    using namespace shmap;
    const Mesh mesh = make_mesh({8}, "i");
    const Array x = device_put(ones({64, 64}), {mesh, P("i")});
    auto total = jit([](Array v) { return sum(matmul(v, v)); });
    int sums = 0;
    for (int k = 0; k < 3; ++k) sums += static_cast<int>(total(x).item<float>());
    return sums;
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return -1;
  }
}
