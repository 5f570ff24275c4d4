#include <shmap/shmap.h>

#include <iostream>
using namespace shmap;

int main() {
  Mesh mesh = make_mesh({4, 2}, {"i", "j"});  // 8 devices; without a GPU they are virtual
  Array a = reshape(arange(8 * 4), {8, 4}), b = ones({4, 3});
  auto product = shard_map([](Array a, Array b) { return psum(matmul(a, b), "j"); }, mesh,
                           {P("i", "j"), P("j", none)}, P("i", none));
  Array c = product(a, b);
  std::cout << c << "\n";
  debug::visualize_array_sharding(c);
}
