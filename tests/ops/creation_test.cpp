// shmap-test: devices
// Making arrays and placing them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "core/ops/shape_params.h"
#include "shmap/counters.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/shard_map.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using ::testing::Each;
using ::testing::ElementsAre;

template <class T>
std::vector<std::uint32_t> bits(const Array& x) {
  std::vector<std::uint32_t> out;
  for (T v : x.to_vector<T>()) out.push_back(std::bit_cast<std::uint32_t>(v));
  return out;
}

TEST(Array, CopiesHostData) {
  const Array x = array<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(to_string(x.type()), "f32[2,3]");
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  std::vector<std::int64_t> values = {7, 8};
  const Array y = array<std::int64_t>(values, {2});
  values[0] = 0;
  EXPECT_THAT(y.to_vector<std::int64_t>(), ElementsAre(7, 8));
  EXPECT_THAT(array<bool>({true, false}, {2}).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_EQ(array<float>({}, {0, 3}).size(), 0);
  EXPECT_EQ(array<float>({2.f}, {}).item<float>(), 2.f);
  EXPECT_FALSE(array<float>({2.f}, {}).type().weak());
}

TEST(Array, RefusesACountThatDoesNotFillTheShape) {
  expect_error<ValueError>(
      [] {
        array<float>({1, 2, 3}, {2, 2});
      },
      {"array: 3 values do not fill the shape (2, 2), which wants 4", "creation_test.cpp"});
}

TEST(Constants, HaveShapeAndDtype) {
  EXPECT_THAT(zeros({2, 2}).to_vector<float>(), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(ones({3}, i8).to_vector<std::int8_t>(), ElementsAre(1, 1, 1));
  EXPECT_THAT(ones({2}, bool_).to_vector<bool>(), ElementsAre(true, true));
  EXPECT_EQ(zeros({}, i32).type(), ShapedArray({}, i32));
  EXPECT_FALSE(zeros({}, i32).type().weak());
  EXPECT_EQ(empty({4, 0}, bf16).type(), ShapedArray({4, 0}, bf16));
  EXPECT_THAT(full({2}, 7).to_vector<std::int32_t>(), ElementsAre(7, 7));
  EXPECT_TRUE(full({2}, 7).type().weak());  // as JAX's: the scalar's dtype gives way
  EXPECT_THAT(full({2}, 7.9, i32).to_vector<std::int32_t>(), ElementsAre(7, 7));
  EXPECT_THAT(full({2, 2}, array<float>({1, 2}, {2})).to_vector<float>(), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(eye(2, i32).to_vector<std::int32_t>(), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(full({70000}, 3.f).to_vector<float>(), Each(3.f));
  expect_error<ValueError>(
      [] {
        full({2}, array<float>({1, 2, 3}, {3}));
      },
      {"full", "(3,)", "(2,)", "creation_test.cpp"});
  expect_error<TypeError>([] { zeros({2}, prng_key); }, {"zeros", "key<fry>", "not a number"});
  EXPECT_THROW(zeros({-2}), ValueError);
}

TEST(Arange, FollowsJax) {
  EXPECT_THAT(arange(4).to_vector<float>(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(arange(-4).size(), 0);
  EXPECT_THAT(arange(3, i64).to_vector<std::int64_t>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(arange(10, 0, -3, i32).to_vector<std::int32_t>(), ElementsAre(10, 7, 4, 1));
  EXPECT_THAT(arange(0.5, 5, 1, i32).to_vector<std::int32_t>(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(arange(5, 2).size(), 0);
  EXPECT_EQ(arange(2, 5, -1).size(), 0);
  EXPECT_EQ(arange(0., -1e300, 1.).size(), 0);
  EXPECT_THAT(arange(2, 5).to_vector<float>(), ElementsAre(2, 3, 4));
  EXPECT_THAT(arange(array<std::int32_t>({1}, {}), 3, 1, i32).to_vector<std::int32_t>(),
              ElementsAre(1, 2));
  // JAX's bits.
  EXPECT_THAT(bits<float>(arange(0, 1, 0.1)),
              ElementsAre(0x0, 0x3dcccccd, 0x3e4ccccd, 0x3e99999a, 0x3ecccccd, 0x3f000000,
                          0x3f19999a, 0x3f333333, 0x3f4ccccd, 0x3f666667));
  std::vector<std::uint16_t> half;
  for (bfloat16 v : arange(0, 3, 0.7, bf16).to_vector<bfloat16>())
    half.push_back(std::bit_cast<std::uint16_t>(v));
  EXPECT_THAT(half, ElementsAre(0x0, 0x3f33, 0x3fb3, 0x4006, 0x4033));
  expect_error<ValueError>([] { arange(0, 3, 0); }, {"arange: step is 0", "creation_test.cpp"});
  expect_error<ValueError>(
      [] {
        arange(array<float>({1, 2}, {2}), 3);
      },
      {"arange: start", "f32[2]", "scalar"});
  expect_error<TypeError>([] { arange(3, bool_); }, {"iota", "bool"});
}

TEST(Iota, CountsAlongAnyDim) {
  const auto values = [](int dim) {
    return bind_iota(i32, {2, 3, 2}, dim, {}).to_vector<std::int32_t>();
  };
  EXPECT_THAT(values(0), ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(values(1), ElementsAre(0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2));
  EXPECT_THAT(values(2), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
  const std::vector<std::int64_t> large = iota(i64, 1 << 20).to_vector<std::int64_t>();
  for (std::size_t k = 0; k < large.size(); ++k) ASSERT_EQ(large[k], static_cast<std::int64_t>(k));
}

TEST(Linspace, FollowsJax) {
  EXPECT_THAT(
      bits<float>(linspace(0.f, 1.f, 7)),
      ElementsAre(0x0, 0x3e2aaaab, 0x3eaaaaab, 0x3f000000, 0x3f2aaaab, 0x3f555555, 0x3f800000));
  // (Where JAX divides by multiplying with a reciprocal, its bits may be one off.)
  EXPECT_THAT(bits<float>(linspace(-2, 5, 6)),
              ElementsAre(0xc0000000, 0xbf19999a, 0x3f4ccccc, 0x400ccccd, 0x40666666, 0x40a00000));
  EXPECT_EQ(linspace(0., 1., 3).dtype(), f64);
  EXPECT_EQ(linspace(0, 1).size(), 50);
  EXPECT_THAT(linspace(3, 4, 1).to_vector<float>(), ElementsAre(3));
  EXPECT_EQ(linspace(3, 4, 0).size(), 0);
  const Array rows = linspace(array<float>({0, 1}, {2}), 10, 3);
  EXPECT_EQ(rows.shape(), Shape({3, 2}));
  EXPECT_THAT(rows.to_vector<float>(), ElementsAre(0, 1, 5, 5.5, 10, 10));
  EXPECT_THROW(linspace(0, 1, -1), ValueError);
}

class Placement : public ::testing::Test {
 protected:
  Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  Array x = reshape(arange(32, i32), {8, 4});
};

TEST_F(Placement, PutsEachBlockOnItsDevice) {
  const NamedSharding rows(mesh, P("i", "j"));
  const Array placed = device_put(x, rows);
  EXPECT_EQ(placed.sharding(), rows);
  EXPECT_EQ(placed.to_vector<std::int32_t>(), x.to_vector<std::int32_t>());
  const std::vector<Shard> shards = placed.addressable_shards();
  ASSERT_EQ(shards.size(), local_devices().size());
  for (const Shard& s : shards) {
    EXPECT_EQ(s.data.shape(), Shape({2, 2}));
    EXPECT_EQ(s.data.to_vector<std::int32_t>().front(), s.index[0].start * 4 + s.index[1].start);
  }
  reset_counters();
  device_put(placed, rows);
  EXPECT_EQ(counters().copied_bytes, 0);
}

TEST_F(Placement, BindsLaterOpsToThePlace) {
  const Device last = local_devices().back();
  const Array there = device_put(x, last);
  EXPECT_EQ((there + 1).addressable_shards().at(0).device, last);
  EXPECT_EQ((1 + there).addressable_shards().at(0).device, last);
  EXPECT_EQ(device_put(2.f, last).item<float>(), 2.f);
  const Array elsewhere = device_put(x, NamedSharding(mesh, P("i")));
  expect_error<ValueError>([&] { there + elsewhere; }, {"add", "device_put", "creation_test.cpp"});
}

TEST_F(Placement, NamesWhatDoesNotDivide) {
  expect_error<ValueError>(
      [&] {
        device_put(ones({6, 4}), NamedSharding(mesh, P("i")));
      },
      {"device_put", "6", "'i'", "4", "creation_test.cpp"});
}

TEST_F(Placement, IsRefusedInsideABody) {
  auto body = [&](Array block) { return device_put(block, devices()[0]); };
  auto f = shard_map(body, mesh, P("i"), P("i"));
  expect_error<ValueError>([&] { f(x); }, {"device_put", "shard_map body", "creation_test.cpp"});
}

TEST_F(Placement, LikeKeepsShardingAndDtype) {
  const NamedSharding sharding(mesh, P("i", "j"));
  const Array placed = device_put(x, sharding);
  reset_counters();
  const Array like = ones_like(placed);
  EXPECT_EQ(counters().copied_bytes, 0);
  EXPECT_EQ(like.sharding(), sharding);
  EXPECT_EQ(like.type(), placed.type());
  EXPECT_THAT(like.to_vector<std::int32_t>(), Each(1));
  EXPECT_THAT(full_like(placed, 2.7).to_vector<std::int32_t>(), Each(2));
  EXPECT_THAT(zeros_like(2.f).to_vector<float>(), ElementsAre(0));
  EXPECT_THAT(full_like(x, placed).to_vector<std::int32_t>(),
              ::testing::ElementsAreArray(x.to_vector<std::int32_t>()));
}

TEST_F(Placement, AllgatherReplicates) {
  const Array whole = process_allgather(device_put(x, NamedSharding(mesh, P("i", "j"))));
  // Of several processes each gets an array of its own.
  if (process_count() == 1) {
    EXPECT_EQ(whole.sharding(), NamedSharding(mesh, P()));
  } else {
    EXPECT_TRUE(whole.is_fully_addressable());
  }
  EXPECT_EQ(whole.to_vector<std::int32_t>(), x.to_vector<std::int32_t>());
  EXPECT_EQ(process_allgather(x).to_vector<std::int32_t>(), x.to_vector<std::int32_t>());
}

TEST_F(Placement, ConstantsInABodyAreInvariant) {
  auto f = shard_map(
      [](Array block) {
        EXPECT_TRUE(zeros({2, 2}).vma().empty());
        EXPECT_TRUE(arange(4, i32).vma().empty());
        return block + arange(4, i32);
      },
      mesh, P("i"), P("i"));
  const Array y = f(x);
  std::vector<std::int32_t> want = x.to_vector<std::int32_t>();
  for (std::size_t k = 0; k < want.size(); ++k) want[k] += static_cast<std::int32_t>(k % 4);
  EXPECT_EQ(y.to_vector<std::int32_t>(), want);
}

}  // namespace
}  // namespace shmap
