// shmap-test: devices
// Collectives of trees, and how their primitives print.
#include <gtest/gtest.h>

#include "collectives/primitives.h"
#include "shmap/shmap.h"
#include "tests/support/device_grids.h"

namespace shmap::test {
namespace {

struct Layer {
  Array w;
  std::vector<Array> rest;
  int heads = 0;  // static: passes through
};

template <class F>
void in_body(F body) {
  shard_map(
      [&](Array x) {
        body(x);
        return x;
      },
      mesh_in_all_processes({4}, "i"), P("i"), P("i"))(arange(4));
}

TEST(CollectiveTrees, EveryContainer) {
  in_body([](Array x) {
    const std::vector<Array> v = psum(std::vector<Array>{x, x * 2.f}, "i");
    EXPECT_EQ(v.at(0).item<float>(), 6.f);
    EXPECT_EQ(v.at(1).item<float>(), 12.f);
    const std::map<std::string, Array> m =
        pmax(std::map<std::string, Array>{{"a", x}, {"b", -x}}, "i");
    EXPECT_EQ(m.at("a").item<float>(), 3.f);
    EXPECT_EQ(m.at("b").item<float>(), 0.f);
    const Layer l = pmin(Layer{x, {x + 1.f, x + 2.f}, 8}, "i");
    EXPECT_EQ(l.w.item<float>(), 0.f);
    EXPECT_EQ(l.rest.at(1).item<float>(), 2.f);
    EXPECT_EQ(l.heads, 8);
    const auto [a, b] = pmean(std::pair{x, x * 2.f}, "i");
    EXPECT_EQ(a.item<float>(), 1.5f);
    EXPECT_EQ(b.item<float>(), 3.f);
    const std::array<Array, 2> g = all_gather(std::array<Array, 2>{x, x}, "i");
    EXPECT_EQ(g[1].shape(), Shape({4, 1}));
    const std::optional<Array> o = psum(std::optional<Array>(x), "i");
    EXPECT_EQ(o->item<float>(), 6.f);
    EXPECT_FALSE(psum(std::optional<Array>(), "i").has_value());
    EXPECT_TRUE(psum(std::vector<Array>(), "i").empty());
  });
}

TEST(CollectiveTrees, EveryCollective) {
  in_body([](Array x) {
    using Pair = std::tuple<Array, Array>;
    const Pair t{x, x};
    const auto second = [](const Pair& p) { return to_string(std::get<1>(p).type()); };
    EXPECT_EQ(second(ppermute(t, "i", {{0, 1}})), "f32[1]{i}");
    EXPECT_EQ(second(pshuffle(t, "i", {3, 2, 1, 0})), "f32[1]{i}");
    EXPECT_EQ(second(all_gather_invariant(t, "i", {.tiled = true})), "f32[4]");
    const Pair gathered = all_gather(t, "i");
    EXPECT_EQ(second(psum_scatter(gathered, "i")), "f32[1]{i}");
    EXPECT_EQ(second(pswapaxes(gathered, "i", 0)), "f32[4,1]{i}");
    EXPECT_EQ(second(all_to_all(gathered, "i", 0, 1)), "f32[1,4]{i}");
    const Array k = zeros({4}, i32);
    EXPECT_EQ(second(ragged_all_to_all(t, t, k, k, k, k, "i")), "f32[1]{i}");
    EXPECT_EQ(second(broadcast_from(t, "i", 1)), "f32[1]");
    const Pair sum = psum(t, "i");
    EXPECT_EQ(second(pbroadcast(sum, "i")), "f32[1]{i}");
    EXPECT_EQ(second(pvary(sum, "i")), "f32[1]{i}");
    EXPECT_EQ(second(pscatter(all_gather_invariant(t, "i"), "i")), "f32[1]{i}");
    // Host scalars in a tree become arrays.
    const std::tuple<Array, Array> mixed = psum(std::tuple{x, 2.f}, "i");
    EXPECT_EQ(std::get<1>(mixed).item<float>(), 8.f);
  });
}

TEST(CollectiveTrees, ParametersPrintUnderTheirNames) {
  EXPECT_EQ(to_string(AxesParams("i")), "axes=('i',)");
  EXPECT_EQ(to_string(AxesParams({"j", "i"}, {{0, 1}, {2, 3}})),
            "axes=('j', 'i') axis_index_groups=((0, 1), (2, 3))");
  AllGatherParams gather;
  gather.axes = "i";
  gather.dimension = 1;
  gather.ranks = 8;
  gather.tiled = true;
  EXPECT_EQ(to_string(gather), "all_gather_dimension=1 axis_name=('i',) axis_size=8 tiled=True");
  ScatterParams scatter;
  scatter.axes = "i";
  scatter.ranks = 8;
  EXPECT_EQ(to_string(scatter), "axis_name=('i',) axis_size=8 scatter_dimension=0 tiled=False");
  AllToAllParams exchange;
  exchange.axes = "i";
  exchange.ranks = 8;
  exchange.split_axis = 1;
  EXPECT_EQ(to_string(exchange),
            "axis_name=('i',) axis_size=8 concat_axis=0 split_axis=1 tiled=False");
  EXPECT_EQ(to_string(PermuteParams("i", {{0, 1}, {1, 0}})),
            "axis_name=('i',) perm=((0, 1), (1, 0))");
  EXPECT_EQ(to_string(SourceParams("i", 3)), "axis_name=('i',) source=3");
  for (const char* name :
       {"psum", "pbroadcast", "pmax", "pmin", "all_gather", "psum_scatter", "all_gather_invariant",
        "pscatter", "all_to_all", "ppermute", "axis_index", "broadcast_from"}) {
    devices();  // starts the library
    ASSERT_NE(find_primitive(name), nullptr) << name;
    EXPECT_NE(find_primitive(name)->group, nullptr) << name;
  }
}

}  // namespace
}  // namespace shmap::test
