// shmap-test: devices
// Reductions of columns that compute their operand on the fly: values are those of eager
// operations, bit for bit.
#include "core/compiler/fusion/fuse_columns.h"

#include <gtest/gtest.h>

#include "core/array/mesh_impl.h"
#include "core/compiler/fusion/copy_for_columns.h"
#include "core/device/runtime.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/shmap.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

Array numbers(const Shape& shape, DType dtype = f32) {
  return astype(sin(reshape(arange(shape.num_elements()), shape)) * 50.f, dtype);
}

bool fuses_columns() { return make_mesh({1}, "i").impl()->backend().kind() == DeviceKind::cpu; }

// Compares with eager results, also on split arrays. On one device the plan must have `wanted` such
// equations.
template <class F, class... A>
void expect_columns(std::size_t wanted, F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  if (!fuses_columns()) return;
  const auto jitted = jit(f);
  jitted(args...);
  const std::string plan = jitted.plan_text();
  std::size_t n = 0;
  for (std::size_t at = plan.find("fused_columns["); at != plan.npos;
       at = plan.find("fused_columns[", at + 1))
    ++n;
  EXPECT_EQ(n, wanted) << plan;
}

// Rows that are whole groups of eight and not, few and many columns, more segments than one.
TEST(FuseColumns, SumsOfEveryDtypeAndExtent) {
  for (const DType dtype : {f32, f64, bf16, i32, i64, u8}) {
    for (const auto& [rows, cols] : std::vector<std::pair<int, int>>{
             {64, 64}, {71, 65}, {130, 200}, {1000, 96}, {1029, 130}, {77, 3001}, {300, 1000}}) {
      SCOPED_TRACE(to_string(dtype) + std::to_string(cols));
      const Array x = numbers({rows, cols}, dtype);
      expect_columns(
          1, [](Array x) { return sum(square(x), 0); }, x);
      expect_columns(
          1, [](Array x) { return sum(x * 3 - x * x, 0); }, x);
    }
  }
}

TEST(FuseColumns, OtherReductions) {
  const Array x = numbers({203, 131}), y = numbers({203, 131}, bf16);
  expect_columns(
      1, [](Array x) { return max(x * 2.f, 0); }, x);
  expect_columns(
      1, [](Array x) { return min(abs(x) + 1.f, 0); }, y);
  expect_columns(
      1, [](Array x) { return prod(x * 0.02f, 0); }, y);
  expect_columns(
      1, [](Array x) { return any(x > 49.9f, 0); }, x);
  expect_columns(
      1, [](Array x) { return all(x < 49.9f, 0); }, x);
  expect_columns(
      1, [](Array x) { return sum(astype(x, i32) * 7, 0); }, x);
}

TEST(FuseColumns, WithValuesOfRowsColumnsAndReductionsOfRows) {
  const Array x = numbers({90, 70}), row = numbers({70}), column = numbers({90, 1});
  expect_columns(
      1, [](Array x, Array row, Array column) { return sum((x - row) * column, 0); }, x, row,
      column);
  expect_columns(
      1, [](Array x) { return sum(softmax(x), 0); }, x);
  expect_columns(
      1, [](Array x) { return mean(square(x), 0); }, numbers({90, 1500}));
}

// The centred values are stored neither for the sum of their squares nor for the scaling.
TEST(FuseColumns, AValueThatIsReadAgainIsComputedAgain) {
  const auto normalize = [](Array x) {
    const Array centred = x - mean(x, 0);
    return centred * rsqrt(mean(square(centred), 0) + 1e-5f);
  };
  for (const DType dtype : {f32, f64, bf16}) {
    for (const Shape& shape : {Shape{64, 64}, Shape{131, 70}, Shape{1029, 130}}) {
      SCOPED_TRACE(to_string(dtype) + to_string(shape));
      // The mean of a half type sums what is widened, which is another one.
      expect_columns(dtype == bf16 ? 2 : 1, normalize, numbers(shape, dtype));
    }
  }
  const Array x = numbers({203, 131}), y = numbers({203, 131}) * 0.5f, row = numbers({131});
  // A value that does not wait for the sum is computed with its operand, in one program.
  expect_columns(
      0,
      [](Array x, Array row) {
        const Array shifted = x + row;
        return std::pair{sum(abs(shifted), 0), shifted * 2.f};
      },
      x, row);
  // A value that a fused program computes is not stored for that.
  expect_columns(
      0,
      [](Array x) {
        const Array shifted = exp(x * 0.01f) + 2.f;
        return shifted * sum(square(shifted), 0);
      },
      x);
  // A difference of two arrays is read again, as before.
  expect_columns(
      0,
      [](Array x, Array y) {
        const Array difference = x - y;
        return difference * sum(square(difference), 0);
      },
      x, y);
}

// A value is copied only where a fused program can reach from it to the reduction; the chain
// between the two may have any length.
TEST(FuseColumns, AValueFarBeforeTheReductionIsNotCopied) {
  const auto copies = [](int steps) {
    const ClosedJaxpr j = make_jaxpr([steps](Array x) {
      const Array shared = x * 2.f;
      Array y = shared;
      for (int i = 0; i < steps; ++i) y = y + 1.f;
      return shared * sum(y, 0);
    })(ShapedArray({64, 64}, f32));
    const JaxprRef before = j.impl().jaxpr;
    return copy_for_columns(*before) != before;
  };
  EXPECT_TRUE(copies(50));
  EXPECT_FALSE(copies(200));
  EXPECT_FALSE(copies(50000));
}

TEST(FuseColumns, SeveralOuterDimsAreRows) {
  expect_columns(
      1,
      [](Array x) {
        return sum(x * x, {0, 1});
      },
      numbers({8, 20, 100}));
  expect_columns(
      1, [](Array x) { return max(x + 1.f, 0); }, numbers({70, 20, 6}));
}

// Values that other operations use have to be stored. Sums of middle dims and of half floats are
// not fused.
TEST(FuseColumns, WhatIsLeft) {
  const Array x = numbers({100, 80});
  expect_columns(
      0,
      [](Array x) {
        const Array y = exp(x * 0.01f);
        return std::pair{y, sum(y, 0)};
      },
      x);
  expect_columns(
      0, [](Array x) { return sum(x, 0); }, x);
  expect_columns(
      0, [](Array x) { return sum(x * 2.f, 1); }, numbers({3, 100, 80}));
  expect_columns(
      0, [](Array x) { return sum(x * x, 0); }, astype(x * 0.1f, f16));
  expect_columns(
      0, [](Array x) { return sum(x * x, 0); }, numbers({8, 300}));
}

TEST(FuseColumns, NansAndDerivatives) {
  Array x = numbers({100, 80});
  x = where(x > 49.f, log(-x), x);
  expect_columns(
      1, [](Array x) { return max(x * 2.f, 0); }, x);
  const Array bias = numbers({80});
  const auto loss = [x = numbers({100, 80})](Array bias) { return sum(square(tanh(x + bias))); };
  expect_same_under_jit(grad(loss), Communication::no_more, bias);
}

}  // namespace
}  // namespace shmap::test
