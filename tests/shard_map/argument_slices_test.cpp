// shmap-test: devices
// A slice of an argument at a computed offset: a view, if the offset is known when it is asked for.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/ir/node.h"

namespace shmap {
namespace {

constexpr int kDevices = 8;
constexpr std::int64_t kRows = 16, kColumns = 6;

// A schedule may compute the offset later, and the host does not read a GPU's memory for
// it.
bool places_are_known() {
  if (devices()[0].kind() != DeviceKind::cpu) return false;
  const char* const executor = std::getenv("SHMAP_EXECUTOR");
  return executor == nullptr || std::string(executor).rfind("seeded", 0) != 0;
}

// The number of blocks of `part` that share the buffer of the block of `whole`.
int views(const Array& whole, const Array& part) {
  int n = 0;
  for (std::size_t p = 0; p < stored_of(part)->blocks().size(); ++p)
    n += stored_of(part)->blocks()[p].buffer == stored_of(whole)->blocks()[p].buffer;
  return n;
}

void expect_views(const Array& whole, const Array& part) {
  EXPECT_TRUE(views(whole, part) == kDevices || !places_are_known());
}

class ArgumentSlices : public ::testing::Test {
 protected:
  // Runs body(block, axis_index) and checks that each device's result holds the rows from `start`
  // on.
  template <class Body>
  void expect_rows(Body body, std::vector<std::int64_t> starts, std::int64_t rows) {
    const Array out =
        shard_map([&](Array x) { return body(x, axis_index("i")); }, mesh_, P("i"), P("i"))(x_);
    std::vector<float> want;
    for (int d = 0; d < kDevices; ++d) {
      const std::int64_t first = (d * kRows + starts[static_cast<std::size_t>(d)]) * kColumns;
      for (std::int64_t k = 0; k < rows * kColumns; ++k)
        want.push_back(static_cast<float>(first + k));
    }
    EXPECT_EQ(out.to_vector<float>(), want);
  }

  Mesh mesh_ = make_mesh({kDevices}, {"i"});
  Array x_ = device_put(reshape(arange(kDevices * kRows * kColumns), {kDevices * kRows, kColumns}),
                        NamedSharding(mesh_, P("i")));
};

TEST_F(ArgumentSlices, AreViewsWhereTheirPlaceIsKnown) {
  expect_rows(
      [](Array x, Array index) {
        reset_counters();
        Array part = dynamic_slice(x, {index, 0}, {4, kColumns});
        EXPECT_EQ(counters().kernel_launches, kDevices);  // whichever way
        expect_views(x, part);
        return part;
      },
      {0, 1, 2, 3, 4, 5, 6, 7}, 4);
}

TEST_F(ArgumentSlices, WrapAndClampAsCopiesDo) {
  for (const DType t : {i8, i16, i32, i64}) {
    expect_rows(
        [&](Array x, Array index) {
          return dynamic_slice(x, {astype(index - 4, t) * 5, 0}, {4, kColumns});
        },
        {0, 1, 6, 11, 0, 5, 10, 12}, 4);  // of -20, -15, -10, -5, 0, 5, 10, 15
  }
  for (const DType t : {u8, u16, u32, u64}) {
    expect_rows(
        [&](Array x, Array index) {
          return dynamic_slice(x, {astype(index, t) * 30, 0}, {4, kColumns});
        },
        {0, 12, 12, 12, 12, 12, 12, 12}, 4);
  }
}

TEST_F(ArgumentSlices, AreCopiesOfWhatIsWrittenInPlace) {
  expect_rows(
      [](Array x, Array index) {
        Array own = x + 0.f;
        Array part = dynamic_slice(own, {index, 0}, {4, kColumns});
        EXPECT_EQ(views(own, part), 0);
        own = dynamic_update_slice(std::move(own), part * 0.f, {index, 0});
        return part;
      },
      {0, 1, 2, 3, 4, 5, 6, 7}, 4);
}

TEST_F(ArgumentSlices, AreCopiesWhereTheyAreSmallOrNotContiguous) {
  expect_rows(
      [](Array x, Array index) {
        Array row = dynamic_slice(x, {index, 0}, {1, kColumns});
        expect_views(x, row);  // a sixteenth
        Array narrow = dynamic_slice(x, {index, 1}, {4, kColumns - 1});
        EXPECT_EQ(views(x, narrow), 0);
        Array few = dynamic_slice(x, {index, 1}, {1, kColumns - 1});
        EXPECT_EQ(views(x, few), 0);
        return row;
      },
      {0, 1, 2, 3, 4, 5, 6, 7}, 1);
}

// The part stays what it was when the argument is overwritten later.
TEST_F(ArgumentSlices, KeepTheirValues) {
  Array part = shard_map(
      [](Array x) {
        return dynamic_slice(x, {axis_index("i"), 0}, {4, kColumns});
      },
      mesh_, P("i"), P("i"))(x_);
  const std::vector<float> before = part.to_vector<float>();
  x_ *= 0.f;
  EXPECT_EQ(part.to_vector<float>(), before);
}

}  // namespace
}  // namespace shmap
