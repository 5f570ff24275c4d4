// shmap-test: devices
// Meshes, specs and where blocks lie.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

Array iota_f32(Shape shape) { return reshape(arange(shape.num_elements()), shape); }
Array identity(Array x) { return x; }

TEST(Mesh, NamesSizesAndDevices) {
  const Mesh m = make_mesh({4, 2}, {"i", "j"});
  EXPECT_EQ(m.axis_size("i"), 4);
  EXPECT_EQ(m.axis_size("j"), 2);
  EXPECT_EQ(m.size(), 8);
  EXPECT_EQ(m.axis_names(), (std::vector<std::string>{"i", "j"}));
  EXPECT_EQ(m.axis_sizes(), (Shape{4, 2}));
  EXPECT_EQ(m, Mesh(NdArray<Device>(devices(), {8}).reshape({4, 2}), {"i", "j"}));
  EXPECT_NE(m, make_mesh({2, 4}, {"i", "j"}));
  EXPECT_NE(m, make_mesh({4, 2}, {"j", "i"}));
  EXPECT_EQ(to_string(m), "Mesh('i': 4, 'j': 2)");
}

TEST(Mesh, OfTheFirstDevices) {
  const std::vector<Device> all = devices();
  const Mesh m(NdArray<Device>({all[0], all[1], all[2], all[3]}, {4}), "i");
  EXPECT_EQ(m.axis_size("i"), 4);
  EXPECT_EQ(m, make_mesh({4}, "i"));
  const Array y = shard_map(identity, m, P("i"), P("i"))(arange(8));
  EXPECT_EQ(y.addressable_shards().size(), 4u);
}

TEST(Mesh, Errors) {
  expect_error<ValueError>([] { make_mesh({4, 4}, {"i", "j"}); }, {"(4, 4)", "16", "8 devices"});
  expect_error<ValueError>([] { make_mesh({4, 2}, {"i"}); }, {"'i'", "(4, 2)", "one name"});
  expect_error<ValueError>([] { make_mesh({4, 2}, {"i", "i"}); }, {"'i'", "twice"});
  expect_error<ValueError>([] { make_mesh({0}, "i"); }, {"(0,)", "1 or more"});
  expect_error<ValueError>([] { make_mesh({-2}, "i"); }, {"(-2,)", "1 or more"});
  expect_error<ValueError>(
      [] {
        AbstractMesh({1 << 16, 1 << 16}, {"i", "j"});
      },
      {"(65536, 65536)", "2^31 - 1"});
  expect_error<ValueError>([] { make_mesh({2}, ""); }, {"empty"});
  expect_error<ValueError>(
      [] {
        Mesh(NdArray<Device>({devices()[0], devices()[0]}, {2}), "i");
      },
      {"device 0", "twice"});
  expect_error<ValueError>([] { NdArray<Device>(devices(), {3, 2}); }, {"8 values", "(3, 2)", "6"});
  expect_error<ValueError>([] { make_mesh({8}, "i").axis_size("q"); }, {"'q'", "'i': 8"});
  EXPECT_NO_THROW(make_mesh({8}, "i"));
}

TEST(Mesh, WithoutAxesHasOneDevice) {
  const Mesh m = make_mesh({}, {});
  EXPECT_EQ(m.size(), 1);
  EXPECT_EQ(shard_map(identity, m, P(), P())(arange(3)).to_vector<float>(),
            (std::vector<float>{0, 1, 2}));
}

TEST(PartitionSpec, Prints) {
  EXPECT_EQ(to_string(P("i", none)), "P('i', none)");
  EXPECT_EQ(to_string(P(axes("j", "i"), none)), "P(('j', 'i'), none)");
  EXPECT_EQ(to_string(P()), "P()");
  EXPECT_EQ(P(axes("i")), P("i"));
}

TEST(NamedSharding, TrailingNoneMakesNoDifference) {
  const Mesh m = make_mesh({4, 2}, {"i", "j"});
  EXPECT_EQ(NamedSharding(m, P("i")), NamedSharding(m, P("i", none)));
  EXPECT_NE(NamedSharding(m, P("i")), NamedSharding(m, P(none, "i")));
  expect_error<ValueError>([&] { NamedSharding(m, P("q")); }, {"'q'", "position 0", "'i': 4"});
  expect_error<ValueError>([&] { NamedSharding(m, P("i", "i")); }, {"'i'", "more than once"});
  expect_error<ValueError>([&] { NamedSharding(m, P(axes("i", "i"))); }, {"'i'", "more than once"});
}

TEST(AxisRules, MapLogicalNames) {
  const AxisRules rules{{"heads", axes("y", "z")}, {"batch", "x"}, {"time", none}};
  EXPECT_EQ(rules("batch", "time", none, "heads"), P("x", none, none, axes("y", "z")));
  EXPECT_EQ(rules(), P());
  EXPECT_EQ(rules(none, axes("batch", "heads")), P(none, axes("x", "y", "z")));
  expect_error<ValueError>([&] { rules("embed"); }, {"'embed'", "'heads'", "'batch'"});
  expect_error<ValueError>([&] { rules("time", "bacth"); },
                           {"'bacth' (did you mean 'batch'?)", "there are rules for"});
}

std::string here(int line) { return "placement_test.cpp:" + std::to_string(line); }

// Each lambda is on the same line as its call of `at_caller`.
template <class F>
void at_caller(F f, std::initializer_list<const char*> wanted, int line = __builtin_LINE()) {
  expect_error<ValueError>(f, {here(line).c_str()});
  expect_error<ValueError>(f, wanted);
}

TEST(CallersLine, IsInErrorsOfMeshesAndShardings) {
  const Mesh m = make_mesh({4, 2}, {"rows", "cols"});
  const AbstractMesh abstract({4, 2}, {"rows", "cols"});
  const AxisRules rules{{"batch", "rows"}};
  const Array x = arange(8);
  at_caller([] { make_mesh({16}, "i"); }, {"make_mesh", "16 places", "8 devices"});
  at_caller([] { make_mesh({4, 2}, "i"); }, {"make_mesh", "one name for each of the 2 axes"});
  at_caller([] { make_mesh({4, 2}, {"i", "i"}); }, {"make_mesh", "'i' is given twice"});
  at_caller([] { AbstractMesh({4, 0}, {"i", "j"}); }, {"AbstractMesh", "size of 1 or more"});
  at_caller([] { NdArray<Device>(devices(), {3}); }, {"NdArray", "8 values", "3 places"});
  at_caller([] { NdArray<Device>(devices(), {8}).reshape({3}); }, {"NdArray", "3 places"});
  at_caller([&] { m.axis_size("row"); }, {"'row' (did you mean 'rows'?)", "'cols': 2"});
  at_caller([&] { abstract.axis_size("COLS"); }, {"'COLS' (did you mean 'cols'?)"});
  at_caller([&] { m.axis_size("z"); }, {"no axis 'z';"});
  at_caller([&] { NamedSharding(m, P("rosw")); }, {"'rosw'", "(did you mean 'rows'?)"});
  at_caller([&] { rules("batch", "heads"); }, {"'heads'", "there are rules for 'batch'"});
  at_caller([&] { device_put(x, {m, P(none, "rows")}); }, {"device_put", "length 2", "rank 1"});
  at_caller([&] { device_put(x, {m, P("rosw")}); }, {"NamedSharding", "(did you mean 'rows'?)"});
}

TEST(CallersLine, IsInErrorsOfArraysThatAreEmpty) {
  const Array x;
  at_caller([&] { x.shape(); }, {"shape", "moved from"});
  at_caller([&] { x.ndim(); }, {"ndim"});
  at_caller([&] { x.size(); }, {"size"});
  at_caller([&] { x.dtype(); }, {"dtype"});
  at_caller([&] { x.nbytes(); }, {"nbytes"});
  at_caller([&] { x.type(); }, {"type"});
  at_caller([&] { x.vma(); }, {"vma"});
  at_caller([&] { x.sharding(); }, {"sharding"});
  at_caller([&] { x.is_fully_addressable(); }, {"is_fully_addressable"});
  at_caller([&] { x.addressable_shards(); }, {"addressable_shards"});
  at_caller([&] { x.block_until_ready(); }, {"block_until_ready"});
  at_caller([&] { x.item<float>(); }, {"item"});
  at_caller([&] { x.to_vector<float>(); }, {"size"});
  at_caller([&] { arange(4).item<float>(); }, {"item", "4 elements", "the result of iota at"});
}

TEST(OperandsOnTwoMeshes, AreNamedWithWhatDiffers) {
  const std::vector<Device> d = devices();
  const Array x = iota_f32({8, 8});
  const Mesh grid = make_mesh({4, 2}, {"i", "j"}), flat = make_mesh({8}, "k");
  const Mesh turned(NdArray<Device>({d[7], d[6], d[5], d[4], d[3], d[2], d[1], d[0]}, {8}), "k");
  const Mesh low(NdArray<Device>({d[0], d[1], d[2], d[3]}, {4}), "i");
  const Mesh high(NdArray<Device>({d[2], d[3], d[4], d[5], d[6], d[7]}, {6}), "i");
  const Array on_grid = device_put(x, {grid, P("i", "j")}), on_flat = device_put(x, {flat, P("k")}),
              on_turned = device_put(x, {turned, P("k")}), on_low = device_put(x, {low, P("i")}),
              on_high = device_put(x, {high, P()}), on_one = device_put(x, d[5]);
  at_caller([&] { on_grid + on_flat; },
            {"add: the operands are placed on two meshes",
             "operand 0 on Mesh('i': 4, 'j': 2) of devices 0 to 7",
             "operand 1 on Mesh('k': 8) of devices 0 to 7", "the same 8 devices with other axes",
             "device_put(x, NamedSharding(mesh, spec))"});
  at_caller([&] { on_flat* on_turned; },
            {"devices 7, 6, 5, 4, 3, 2, 1, 0", "the same 8 devices in another order"});
  at_caller([&] { on_low - on_high; }, {"of devices 0 to 3", "2 in common"});
  at_caller([&] { on_low - on_one; }, {"operand 1 on device 5", "(different devices)"});
}

// The block with mesh coordinates (a, b) lies on devices[a, b]; a permuted mesh permutes places and
// nothing else.
TEST(Placement, IsExact) {
  std::vector<Device> order = devices();
  std::reverse(order.begin(), order.end());
  std::swap(order[1], order[5]);
  const Mesh m(NdArray<Device>(order, {4, 2}), {"i", "j"});
  const Array x = iota_f32({8, 4});
  const Array y = shard_map(identity, m, P("i", "j"), P("i", "j"))(x);
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  const std::vector<Shard> shards = y.addressable_shards();
  ASSERT_EQ(shards.size(), 8u);
  for (const Shard& s : shards) {
    const std::int64_t a = s.index[0].start / 2, b = s.index[1].start / 2;
    EXPECT_EQ(s.device, order[static_cast<std::size_t>(2 * a + b)]);
    const std::vector<float> block = s.data.to_vector<float>();
    EXPECT_EQ(block[0], static_cast<float>(2 * a * 4 + 2 * b));
  }
}

TEST(Placement, TupleEntriesAreMajorToMinor) {
  const Mesh m = make_mesh({4, 2}, {"i", "j"});
  const Array x = device_put(arange(16), NamedSharding(m, P(axes("j", "i"))));
  for (const Shard& s : x.addressable_shards()) {
    const int i = s.device.id() / 2, j = s.device.id() % 2;
    EXPECT_EQ(s.index[0].start, (j * 4 + i) * 2);
    EXPECT_EQ(s.index[0].stop, (j * 4 + i) * 2 + 2);
  }
}

TEST(Placement, ReplicatedAxesShareAnIndex) {
  const Mesh m = make_mesh({4, 2}, {"i", "j"});
  const Array x = device_put(iota_f32({8, 4}), NamedSharding(m, P("i", none)));
  for (const Shard& s : x.addressable_shards()) {
    EXPECT_EQ(s.data.shape(), (Shape{2, 4}));
    EXPECT_EQ(s.index[0].start, s.device.id() / 2 * 2);
    EXPECT_EQ(s.index[1], (Slice{0, 4}));
  }
}

TEST(Placement, DevicePutToOneDevice) {
  const Array x = device_put(arange(4), devices()[3]);
  EXPECT_EQ(x.addressable_shards().at(0).device, devices()[3]);
  EXPECT_EQ((x + 1).addressable_shards().at(0).device, devices()[3]);
  const Array y = device_put(arange(4), devices()[5]);
  expect_error<ValueError>([&] { x + y; },
                           {"add", "device 3", "device 5", "device_put", "placement_test.cpp"});
  EXPECT_EQ((x + arange(4)).to_vector<float>(),
            (std::vector<float>{0, 2, 4, 6}));  // what was never placed follows
}

}  // namespace
}  // namespace shmap
