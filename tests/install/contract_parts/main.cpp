// What the published snippets show inside parts that are not built yet, in their spelling, for
// what there is of them: compiled against the installed package, run, and checked.
#include <shmap/shmap.h>

#include <cstdio>
#include <fstream>
#include <iostream>
using namespace shmap;

int failures = 0;
#define CHECK(...)                                                        \
  do {                                                                    \
    if (!(__VA_ARGS__)) {                                                 \
      std::cout << __FILE__ << ":" << __LINE__ << ": " #__VA_ARGS__ "\n"; \
      ++failures;                                                         \
    }                                                                     \
  } while (false)

void files(const Mesh& mesh, const Array& x) {
  save_npy("a.npy", x);
  CHECK(load_npy("a.npy").to_vector<float>() == x.to_vector<float>());
  Array y = load_npy("a.npy", NamedSharding(mesh, P("i")));
  CHECK(y.sharding() == NamedSharding(mesh, P("i")));
  CHECK(bool(all(y == x)));
  try {
    load_npy("no/such/file.npy");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("no/such/file.npy") != std::string::npos);
  }
}

void counting(const Mesh& mesh, const Array& x) {
  reset_counters();
  CHECK(counters().kernel_launches == 0);
  shard_map([](Array block) { return psum(block, "i"); }, mesh, P("i"), P())(x).block_until_ready();
  Counters c = counters();
  CHECK(c.collectives == 1);
  std::cout << c.kernel_launches << " " << c.copies << " " << c.copied_bytes << " " << c.collectives
            << " " << c.collective_bytes << " " << c.allocations << " " << c.syncs << "\n";
}

void looking(const Mesh& mesh, const Array& x) {
  debug::print("x = {}", x);
  debug::print("{} {}", x, 3);
  debug::print("here");
  debug::visualize_array_sharding(device_put(x, NamedSharding(mesh, P("i"))));
  {
    profiler::Trace t("trace.json");
    named_scope s("q_wi");
    (x + 1).block_until_ready();
  }
  std::ifstream file("trace.json");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  CHECK(text.find("q_wi") != std::string::npos);
}

void rules() {
  AxisRules rules{{"heads", axes("y", "z")}, {"batch", "x"}, {"time", none}};
  P logical = rules("batch", "time", none, "heads");
  CHECK(logical == P("x", none, none, axes("y", "z")));
}

void indexing() {
  Array x = reshape(arange(24, i32), {2, 3, 4});
  Array i = arange(2, i32)[1];
  CHECK(x[{range(), 0, range(1, 3), none}].shape() == Shape{2, 2, 1});
  CHECK(x[{range(), 0, range(1, 3), none}].to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{1, 2, 13, 14});
  CHECK(einsum("ijk,ljk->il", x, x).shape() == Shape{2, 2});
  CHECK(dynamic_slice(x[0], {i, 0}, {2, 4}).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 10, 11});
}

void donation(const Mesh& mesh) {
  auto f = shard_map([](Array block) { return block * 2.f; }, mesh, P("i"), P("i"));
  Array x = device_put(arange(8), NamedSharding(mesh, P("i")));
  Array y = f(std::move(x));
  CHECK(y.to_vector<float>()[7] == 14.f);
  try {
    x + 1;  // NOLINT(bugprone-use-after-move): the point of it
    CHECK(false);
  } catch (const Error&) {
  }
}

// What is a tree: structs of these with defaults too, and none with members of other types, whether
// or not they have defaults.
struct Inner {
  Array w;
  std::array<Array, 3> heads{};
};
struct Outer {
  float scale = 2.f;
  Inner inner{};
  std::string name = "outer";
  std::vector<Inner> layers{};
  std::optional<Inner> last{};
  std::tuple<Array, std::pair<Array, Inner>> rest{};
  bool flag = true;
};
struct WithMesh {
  Array w;
  Mesh mesh;
};
struct WithPointer {
  Array w;
  float* data;
};
struct WithReference {
  Array w;
  float& data;
};
static_assert(Tree<Inner> && Tree<Outer>);
static_assert(!Tree<WithMesh> && !Tree<WithPointer> && !Tree<WithReference> && !Tree<Mesh>);

// Structs as arguments and results: members that are no arrays pass through.
struct Layer {
  Array w;
  float scale;
  std::string name;
  std::vector<Array> extra;
};

void structs(const Mesh& mesh) {
  auto f = shard_map(
      [](Layer layer) {
        layer.w = psum(layer.w, "i");
        return layer;
      },
      mesh, P("i"), {P(), P("i")});
  Layer out = f(Layer{arange(8), 2.5f, "first", {arange(8, i32)}});
  CHECK(out.w.item<float>() == 28.f);
  CHECK(out.scale == 2.5f && out.name == "first");
  CHECK(out.extra.size() == 1 && out.extra[0].to_vector<std::int32_t>()[7] == 7);
}

int main() {
  Mesh mesh = make_mesh({8}, {"i"});
  Array x = arange(8);
  files(mesh, x);
  counting(mesh, x);
  looking(mesh, x);
  rules();
  indexing();
  donation(mesh);
  structs(mesh);
  if (failures == 0) std::cout << "all checks hold\n";
  return failures == 0 ? 0 : 1;
}
