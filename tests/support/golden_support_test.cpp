// The basis of golden comparisons: the reader, and a comparison that can fail.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "shmap/error.h"
#include "tests/support/golden.h"

namespace shmap {
namespace {

using testing::golden_diff;
using testing::GoldenArray;
using testing::load_golden;

GoldenArray floats(const std::vector<float>& values) {
  GoldenArray a{f32, Shape{values.size()}, {}};
  a.bytes.resize(values.size() * sizeof(float));
  std::memcpy(a.bytes.data(), values.data(), a.bytes.size());
  return a;
}

TEST(GoldenSupport, ReadsEveryTopic) {
  for (const char* topic :
       {"promotion", "ops_elementwise", "ops_shape", "ops_reduce", "ops_linalg", "shard_map"}) {
    EXPECT_GT(load_golden(topic).size(), 10u) << topic;
  }
  EXPECT_THROW(load_golden("no_such_topic"), ValueError);
}

TEST(GoldenSupport, ReadsArraysAndParameters) {
  for (const auto& c : load_golden("ops_elementwise")) {
    if (c.name != "add/f32") continue;
    EXPECT_EQ(c.params.text("op"), "add");
    EXPECT_EQ(c.params.integer("ulp"), 0);
    EXPECT_THROW(c.params.integer("op"), ValueError);
    EXPECT_THROW(c.params.integer("absent"), ValueError);
    ASSERT_EQ(c.inputs.size(), 2u);
    ASSERT_EQ(c.inputs[0].shape, (Shape{11, 1}));
    EXPECT_EQ(c.inputs[0].data<float>()[4], 2.5f);
    EXPECT_TRUE(std::isnan(c.inputs[1].data<float>()[10]));
    EXPECT_EQ(c.outputs[0].data<float>()[4 * 11 + 5], 2.5f - 3.0f);
    return;
  }
  FAIL() << "add/f32 is absent";
}

TEST(GoldenSupport, DiffFindsWhatDiffers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const GoldenArray want = floats({1, 0, nan});
  const Shape shape{3};
  const float same[] = {1, 0, -nan};
  EXPECT_EQ(golden_diff(want, same, f32, shape, 0), "");
  const float near[] = {std::nextafter(1.0f, 2.0f), -0.0f, nan};
  EXPECT_NE(golden_diff(want, near, f32, shape, 0), "");
  EXPECT_EQ(golden_diff(want, near, f32, shape, 1), "");
  const float minus_zero[] = {1, -0.0f, nan};
  EXPECT_NE(golden_diff(want, minus_zero, f32, shape, 0).find("at [1]"), std::string::npos);
  const float number[] = {1, 0, 1};
  EXPECT_NE(golden_diff(want, number, f32, shape, 1000).find("at [2]"), std::string::npos);
  const float close[] = {1.125f, 0, nan};
  EXPECT_NE(golden_diff(want, close, f32, shape, 4), "");
  EXPECT_EQ(golden_diff(want, close, f32, shape, 4, 0.125), "");
  EXPECT_NE(golden_diff(want, same, f32, Shape{3, 1}, 0), "");
  EXPECT_NE(golden_diff(want, same, i32, shape, 0), "");
}

TEST(GoldenSupport, DiffOfOppositeSignsCountsAcrossZero) {
  const float least = std::numeric_limits<float>::denorm_min();
  const float got[] = {-least};
  EXPECT_NE(golden_diff(floats({least}), got, f32, Shape{1}, 1), "");
  EXPECT_EQ(golden_diff(floats({least}), got, f32, Shape{1}, 2), "");
}

}  // namespace
}  // namespace shmap
