// Shapes: indices from both ends, what is out of range, and names that are null pointers.
#include "shmap/shape.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "shmap/collectives.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

TEST(Shape, NegativeIndicesCountFromTheBack) {
  const Array x = zeros({2, 3, 5});
  EXPECT_EQ(x.shape()[0], 2);
  EXPECT_EQ(x.shape()[-1], 5);
  EXPECT_EQ(x.shape()[-3], 2);
  EXPECT_EQ(x.shape()[std::size_t{1}], 3);
  Shape shape = x.shape();
  shape[-1] = 7;
  EXPECT_EQ(shape, Shape({2, 3, 7}));
  EXPECT_EQ(shape.front(), 2);
  EXPECT_EQ(shape.back(), 7);
}

TEST(Shape, AnIndexOutOfRangeIsAnError) {
  const Shape shape = {2, 3};
  expect_error<ValueError>([&] { shape[2]; }, {"extent 2", "has 2", "-2 ... 1"});
  expect_error<ValueError>([&] { shape[-3]; }, {"extent -3", "has 2", "-2 ... 1"});
  expect_error<ValueError>([&] { shape[INT64_MIN]; }, {"has 2"});
  expect_error<ValueError>([&] { shape[UINT64_MAX - 9]; }, {"has 2"});
  expect_error<ValueError>([] { Shape{}.back(); }, {"extent -1", "a scalar has none"});
  expect_error<ValueError>([] { Shape{}.front(); }, {"a scalar has none"});
}

TEST(Shape, IsKeptInAVariableForItsIterators) {
  const Array x = zeros({4, 6});
  std::int64_t total = 0;
  for (const std::int64_t extent : x.shape()) total += extent;
  EXPECT_EQ(total, 10);
  const Shape shape = x.shape();
  EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()),
            (std::vector<std::int64_t>{4, 6}));
}

TEST(Dims, OfOneIntegerAreNotCut) {
  enum { batch, features };
  EXPECT_EQ(Dims(INT64_C(1) << 32)[0], INT64_C(1) << 32);
  EXPECT_EQ(Dims(INT64_MIN)[0], INT64_MIN);
  EXPECT_EQ(Dims(std::vector<int>(3).size())[0], 3);
  EXPECT_EQ(Dims(features)[0], 1);
  EXPECT_EQ(sum(zeros({2, 3}), batch).shape(), Shape({3}));
  EXPECT_FALSE(Dims(1).is_list());
  EXPECT_TRUE(Dims({1}).is_list());
  static_assert(!std::is_convertible_v<double, Dims>);
}

TEST(AxisNames, ANullPointerIsAnError) {
  const char* name = nullptr;
  // With the caller's line, or with the name of what was given the pointer.
  expect_error<ValueError>([&] { P("i", name); }, {"P: ", "null pointer", "`none`"});
  expect_error<ValueError>([&] { axes("i", name); }, {"axes: ", "null pointer"});
  expect_error<ValueError>([&] { Specs({{name, P()}}); }, {"Specs: ", "null pointer"});
  expect_error<ValueError>([&] { AxisRules({{name, "i"}}); }, {"AxisRules: ", "null pointer"});
  const auto at = [](int line) { return "shape_test.cpp:" + std::to_string(line); };
  expect_error<ValueError>([&] { make_mesh({8}, {name}); }, {"null pointer", at(__LINE__).c_str()});
  expect_error<ValueError>([&] { make_mesh({8}, name); }, {"null pointer", at(__LINE__).c_str()});
  expect_error<ValueError>([&] { axis_index(name); }, {"null pointer", at(__LINE__).c_str()});
  expect_error<ValueError>([&] { psum(1.f, name); }, {"null pointer", at(__LINE__).c_str()});
}

}  // namespace
}  // namespace shmap
