// Arrays of every kind, for gdb to print: tests/install/gdb/gdb_prints.cmake stops in the two
// functions.
#include <shmap/shmap.h>

using namespace shmap;

struct Layer {
  Array w;
  int units;
};

[[gnu::noinline]] void stop_outside(const Array& split, const Array& empty, const Array& scalar,
                                    const Layer& layer, const Mesh& mesh) {
  asm volatile("" : : "r"(&split), "r"(&empty), "r"(&scalar), "r"(&layer), "r"(&mesh) : "memory");
}
[[gnu::noinline]] void stop_inside(const Array& block) {
  asm volatile("" : : "r"(&block) : "memory");
}

int main() {
  Mesh mesh = make_mesh({2, 2}, {"i", "j"});
  Array split = device_put(reshape(arange(8), {2, 4}), NamedSharding(mesh, P("j", "i")));
  Layer layer{ones({3}), 3};
  split.block_until_ready();
  layer.w.block_until_ready();
  stop_outside(split, Array(), Array(2.5f), layer, mesh);
  auto body = [](Array block) {
    block.block_until_ready();
    stop_inside(block);
    return block;
  };
  shard_map(body, mesh, P("i"), P("i"))(arange(2));
  jit([](Array x) {
    stop_inside(x);
    return x + 1.f;
  })(arange(2));
}
