#include "core/debug/describe_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/device/event.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string text(const Array& x) { return describe_array(node_of(x)); }

TEST(DescribeArray, WholeArraysShowTypeSpecMeshAndValues) {
  const Mesh mesh = make_mesh({2, 2}, {"i", "j"});
  Array x = device_put(reshape(arange(16), {4, 2, 2}), NamedSharding(mesh, P("j", none, "i")));
  x.block_until_ready();
  EXPECT_EQ(text(x), "f32[4,2,2], P('j', none, 'i') on Mesh('i': 2, 'j': 2) of devices 0 to 3\n" +
                         to_string(x));
  Array scalar = device_put(Array(3), NamedSharding(mesh, P()));
  scalar.block_until_ready();
  EXPECT_EQ(text(scalar), "i32[], P() on Mesh('i': 2, 'j': 2) of devices 0 to 3\n3");
  Array none_at_all = zeros({0, 3});
  none_at_all.block_until_ready();
  EXPECT_EQ(text(none_at_all), "f32[0,3], P() on device 0\n[]");
}

TEST(DescribeArray, TheFunctionForDebuggersGivesTheSame) {
  Array x = arange(3);
  x.block_until_ready();
  EXPECT_EQ(shmap_describe_array(x.node()), text(x));
  EXPECT_STREQ(shmap_describe_array(nullptr), "<empty Array>");
  EXPECT_STREQ(shmap_describe_mesh(make_mesh({2, 2}, {"i", "j"}).impl()),
               "Mesh('i': 2, 'j': 2) of devices 0 to 3");
}

TEST(DescribeArray, BlocksShowEachDevicesValues) {
  const Mesh mesh = make_mesh({2}, {"i"});
  std::string said;
  shard_map(
      [&](Array block) {
        block.block_until_ready();
        said = text(block);
        return block;
      },
      mesh, P("i"), P("i"))(arange(4));
  EXPECT_EQ(said,
            "f32[2]{i}, a block on each of Mesh('i': 2) of devices 0, 1\n"
            "On CpuDevice(id=0) at mesh coordinates (i,) = (0,):\n[0. 1.]\n"
            "On CpuDevice(id=1) at mesh coordinates (i,) = (1,):\n[2. 3.]");
}

TEST(DescribeArray, ValuesUnderTransformsSayWhatTheyAre) {
  std::vector<std::string> said;
  auto listen = [&](Array x) {
    said.push_back(text(x));
    return sum(x * x);
  };
  make_jaxpr(listen)(ShapedArray({3}, f32));
  vmap(listen)(ones({2, 3}).block_until_ready());
  jvp(listen, std::tuple{arange(2)}, std::tuple{ones({2})});
  ASSERT_EQ(said.size(), 3u);
  EXPECT_EQ(said[0], "f32[3], traced: it has no values yet");
  EXPECT_THAT(said[1], StartsWith("f32[3], an example of a batch along dim 0 of f32[2,3], P() on"));
  EXPECT_THAT(said[2], StartsWith("under differentiation, of f32[2], P() on device 0"));
}

class Task final : public Completion {
 public:
  Task() : Completion(nullptr) {}
  void block() override {}
  void end(State state) { word_.store(state); }
};

TEST(DescribeArray, WhatIsNotThereYetIsNotRead) {
  Array x = arange(3);
  x.block_until_ready();
  Buffer& buffer = *stored_of(x)->blocks()[0].buffer;
  const Event before = buffer.def();
  Ref<Task> task(new Task);
  buffer.def() = Event(Ref<Completion>(task));
  EXPECT_EQ(text(x), "f32[3], P() on device 0\n(not computed yet)");
  task->end(Completion::failed);
  EXPECT_THAT(text(x), HasSubstr("(the operation that computes it failed)"));
  task->end(Completion::done);
  EXPECT_THAT(text(x), HasSubstr("\n[0. 1. 2.]"));
  buffer.def() = before;
}

TEST(DescribeArray, LargeValuesAreLeftOut) {
  Array x = empty({(64 << 20) / 4 + 1});
  EXPECT_THAT(text(x), HasSubstr("(not shown: 67108868 bytes)"));
}

}  // namespace
}  // namespace shmap
