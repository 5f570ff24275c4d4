// shmap-test: devices
// A donated argument's buffer is reused for the result if nobody else has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/node.h"
#include "shmap/counters.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/shard_map.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

std::vector<const void*> places(const Array& x) {
  std::vector<const void*> out;
  for (const Block& b : stored_of(x)->blocks()) out.push_back(b.data());
  return out;
}

Array fresh() { return array<float>({1, 2, 3, 4}, {4}); }

TEST(Donation, AnRvalueIsOverwritten) {
  Array x = fresh();
  const auto place = places(x);
  Array y = std::move(x) + 1;
  EXPECT_EQ(places(y), place);
  y = exp(std::move(y));
  EXPECT_EQ(places(y), place);
  y = 2 * std::move(y) * 3;  // the temporary too
  EXPECT_EQ(places(y), place);
  y = where(true, std::move(y), 0.f);
  EXPECT_EQ(places(y), place);
  EXPECT_THROW(x + 1, ValueError);
}

TEST(Donation, AssignmentWorksInPlace) {
  Array x = fresh();
  const auto place = places(x);
  reset_counters();
  x += 1;
  x -= 2;
  x *= 2;
  x /= 4;
  EXPECT_EQ(counters().allocations, 0);
  EXPECT_EQ(places(x), place);
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, .5, 1, 1.5));
  x += x;  // twice the same handle: one of them is a copy
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, 1, 2, 3));
}

TEST(Donation, AFailedAssignmentLeavesTheArray) {
  Array x = fresh();
  EXPECT_THROW(x += ones({3}), ValueError);
  EXPECT_THROW(x += Array(), ValueError);
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(Donation, ASecondHandleKeepsItsValue) {
  Array x = fresh();
  const Array keep = x;
  const Array view = reshape(x, {2, 2});
  Array y = std::move(x) + 1;
  EXPECT_NE(places(y), places(keep));
  EXPECT_THAT(keep.to_vector<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(view.to_vector<float>(), ElementsAre(1, 2, 3, 4));
  Array z = fresh();
  const Array row = z[range(1, 3)];
  z += 10;
  EXPECT_THAT(row.to_vector<float>(), ElementsAre(2, 3));
}

TEST(Donation, ElementsOfAnotherSizeNeedAnotherBuffer) {
  Array x = fresh();
  const auto place = places(x);
  EXPECT_NE(places(astype(std::move(x), f64)), place);
  Array y = fresh();
  const auto other = places(y);
  EXPECT_EQ(places(astype(std::move(y), i32)), other);
}

TEST(Donation, DynamicUpdateSliceWritesOnlyThePart) {
  Array x = zeros({4, 3}, i32);
  const auto place = places(x);
  const Array i = array<std::int32_t>({2}, {});
  reset_counters();
  x = dynamic_update_slice(std::move(x), ones({1, 2}, i32), {i, 1});
  EXPECT_EQ(places(x), place);
  EXPECT_THAT(x.to_vector<std::int32_t>(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0));
  const Array keep = x;
  const Array y = dynamic_update_slice(x, 5 * ones({1, 3}, i32), {0, 0});
  EXPECT_NE(places(y), place);
  EXPECT_THAT(keep.to_vector<std::int32_t>(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0));
  EXPECT_THAT(y.to_vector<std::int32_t>(), ElementsAre(5, 5, 5, 0, 0, 0, 0, 1, 1, 0, 0, 0));
  // The update's buffer is never the result's.
  Array update = ones({4, 3}, i32);
  const auto from = places(update);
  EXPECT_NE(places(dynamic_update_slice(keep, std::move(update), {0, 0})), from);
}

TEST(Donation, LargeUpdatesInParts) {
  const std::int64_t n = 1 << 12, m = 257;
  const Array x = reshape(arange(n * m, i32), {n, m});
  const Array update = full({n / 2, m}, -1, i32);
  for (const int start : {0, 1000, 1 << 20}) {
    const Array y = dynamic_update_slice(x, update, {array<int>({start}, {}), 0});
    const std::int64_t at = std::min<std::int64_t>(start, n / 2);
    EXPECT_EQ(y[{range(at, at + n / 2)}].to_vector<int>(), update.to_vector<int>());
    EXPECT_EQ(y[{range(0, at)}].to_vector<int>(), x[{range(0, at)}].to_vector<int>());
    EXPECT_EQ(y[{range(at + n / 2, n)}].to_vector<int>(),
              x[{range(at + n / 2, n)}].to_vector<int>());
  }
}

TEST(Donation, ShardedArraysAreOverwritten) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  Array x = device_put(reshape(arange(32, i32), {8, 4}), NamedSharding(mesh, P("i", "j"))) + 0;
  const auto place = places(x);
  x = std::move(x) + 1;
  EXPECT_EQ(places(x), place);
  // Replicated: the devices of a space share a block, which has one owner all the same.
  Array y = device_put(arange(4, i32), NamedSharding(mesh, P())) + 0;
  const auto shared = places(y);
  y += 1;
  EXPECT_EQ(places(y), shared);
  EXPECT_THAT(y.to_vector<std::int32_t>(), ElementsAre(1, 2, 3, 4));
}

TEST(Donation, BlocksInABodyAreOverwritten) {
  const Mesh mesh = make_mesh({8}, {"i"});
  auto f = shard_map(
      [](Array block) {
        Array acc = block + 1;
        const auto place = places(acc);
        acc += block;
        EXPECT_EQ(places(acc), place);
        acc = std::move(acc) * 2;
        EXPECT_EQ(places(acc), place);
        EXPECT_NE(places(acc), places(block));
        return acc;
      },
      mesh, P("i"), P("i"));
  const Array x = arange(8, i32);
  EXPECT_THAT(f(x).to_vector<std::int32_t>(), ElementsAre(2, 6, 10, 14, 18, 22, 26, 30));
  EXPECT_THAT(x.to_vector<std::int32_t>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace
}  // namespace shmap
