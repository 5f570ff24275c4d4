// shmap-test: devices
// Slices that are joined are read from their arrays: values are those of eager operations, bit for
// bit.
#include "core/compiler/fusion/join_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/array/mesh_impl.h"
#include "core/device/runtime.h"
#include "shmap/shmap.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Array numbers(const Shape& shape, DType dtype = f32) {
  return astype(reshape(arange(shape.num_elements()), shape), dtype);
}

// joined: whether the plan of one device has the slices in one equation with what joins them.
template <class F, class... A>
void expect_joined(bool joined, F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  if (make_mesh({1}, "i").impl()->backend().kind() != DeviceKind::cpu) return;
  const auto jitted = jit(f);
  jitted(args...);
  const std::string plan = jitted.plan_text();
  if (joined) {
    EXPECT_THAT(plan, HasSubstr("concatenate_slices["));
    EXPECT_EQ(plan.find(": compute "), plan.rfind(": compute ")) << plan;  // the only kernel
  } else {
    EXPECT_THAT(plan, Not(HasSubstr("concatenate_slices[")));
  }
}

TEST(JoinSlices, Rolls) {
  for (const DType dtype : {f32, bf16, i8, f64, bool_}) {
    SCOPED_TRACE(to_string(dtype));
    expect_joined(
        true, [](Array x) { return roll(x, 7, 1); }, numbers({33, 50}, dtype));
    expect_joined(
        true, [](Array x) { return roll(x, -2, 1); }, numbers({4, 5, 6}, dtype));
  }
  expect_same_under_jit(
      [](Array x) {
        return roll(x, {3, 5}, {1, 2});
      },
      Communication::no_more, numbers({4, 40, 30}));
  expect_joined(
      true, [](Array x) { return roll(x, 999, 1); }, numbers({700, 1000}));
}

TEST(JoinSlices, PartsOfSeveralArraysWithSteps) {
  expect_joined(
      true,
      [](Array x, Array y) {
        return concatenate(
            {x[{range(1, 4), range(1, 9, 3)}], y, x[{range(2, 5), range(0, 12, 2)}] * 1.f}, 1);
      },
      numbers({5, 12}), numbers({3, 4}) + 100.f);
  expect_joined(
      true,
      [](Array x, Array y) {
        return concatenate({x[{range(1, 4), range(2, 6)}], y[{range(), range(0, 8, 2)}]}, 0);
      },
      numbers({5, 7}), numbers({6, 8}));
}

// Slices of whole rows are views, and those that others read are made anyway.
TEST(JoinSlices, WhatCopiesNothingIsLeft) {
  expect_joined(
      false,
      [](Array x) {
        return concatenate({x[{range(5, 9)}], x[{range(0, 5)}]}, 0);
      },
      numbers({9, 64}));
  expect_joined(
      false,
      [](Array x) {
        const Array part = x[{range(), range(2, 6)}];
        return concatenate({part, part}, 1);
      },
      numbers({9, 64}));
}

TEST(JoinSlices, EmptyParts) {
  expect_joined(
      true,
      [](Array x) {
        return concatenate(
            {x[{range(), range(3, 3)}], x[{range(), range(2, 6)}], x[{range(), range(0, 2)}]}, 1);
      },
      numbers({9, 8}));
}

}  // namespace
}  // namespace shmap::test
