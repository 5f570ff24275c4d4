// A first program, written from the README alone: centres the columns of a matrix whose rows are
// split over four devices, prints it, and saves it in a file.
#include <shmap/shmap.h>

#include <iostream>
using namespace shmap;

int main() {
  Mesh mesh = make_mesh({4}, {"i"});
  Array x = reshape(arange(24), {8, 3});
  auto center = shard_map(
      [](Array block) {                               // f32[2,3]{i}
        Array mean = psum(sum(block, 0), "i") / 8.f;  // f32[3]: the same on every device
        std::cout << "a block: " << block.type() << ", the mean: " << mean.type() << "\n";
        debug::print("first column: {}", block[{range(), 0}]);
        return block - mean;
      },
      mesh, P("i", none), P("i", none));
  Array y = center(x);
  std::cout << "the result: " << y.type() << ", " << y.sharding().spec() << "\n" << y << "\n";
  debug::visualize_array_sharding(y);

  save_npy("centered.npy", y);
  Array back = load_npy("centered.npy", y.sharding());
  std::cout << "read back: " << all(back == y) << "\n";
  try {
    shard_map([](Array block) { return block; }, mesh, P("i", none), P())(x);
  } catch (const ValueError& error) {  // the blocks differ, and P() says that they do not
    std::cout << "refused: " << std::string(error.what()).substr(0, 33) << "\n";
  }
}
