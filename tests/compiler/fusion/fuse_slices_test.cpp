// shmap-test: devices
// Slices that fused programs read from their arrays: values are those of eager slices, bit for
// bit.
#include "core/compiler/fusion/fuse_slices.h"

#include <gtest/gtest.h>

#include "core/array/mesh_impl.h"
#include "core/device/runtime.h"
#include "core/ops/elementwise.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

Array numbers(const Shape& shape, DType dtype = f32) {
  return astype(sin(reshape(arange(shape.num_elements()), shape)) * 50.f, dtype);
}

bool reads_slices() { return make_mesh({1}, "i").impl()->backend().kind() == DeviceKind::cpu; }

// Compares with eager results, also on split arrays. On one device the plan must have `wanted`
// slices.
template <class F, class... A>
void expect_slices(std::size_t wanted, F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  if (!reads_slices()) return;
  const auto jitted = jit(f);
  jitted(args...);
  const std::string plan = jitted.plan_text();
  std::size_t n = 0;
  for (std::size_t at = plan.find(" slice["); at != plan.npos; at = plan.find(" slice[", at + 1))
    ++n;
  EXPECT_EQ(n, wanted) << plan;
}

TEST(FuseSlices, Stencils) {
  for (const DType dtype : {f32, f64, bf16, f16, i32, i64}) {
    for (const auto& [rows, cols] : std::vector<std::pair<int, int>>{
             {3, 130}, {5, 131}, {1, 257}, {40, 1000}, {7, 2500}, {2, 9001}}) {
      SCOPED_TRACE(cols);
      expect_slices(
          rows == 1 ? 5 : 0,  // of one row they are views
          [rows = rows, cols = cols](Array x) {
            const auto part = [&](int row, int column) {
              return x[{range(row, row + rows), range(column, column + cols)}];
            };
            return part(1, 1) * 4 - part(0, 1) - part(2, 1) - part(1, 0) - part(1, 2);
          },
          numbers({rows + 2, cols + 2}, dtype));
    }
  }
}

TEST(FuseSlices, DifferencesWithRowsColumnsAndReductions) {
  const auto left = [](Array x) { return x[{range(), range(1, x.shape()[1])}]; };
  const auto right = [](Array x) { return x[{range(), range(0, x.shape()[1] - 1)}]; };
  // A GPU adds longer rows of a fused program in another order than a reduction (docs/gpu.md).
  const std::vector<int> widths =
      reads_slices() ? std::vector{130, 1001, 5000} : std::vector{130, 701};
  for (const int cols : widths) {
    SCOPED_TRACE(cols);
    const Array x = numbers({9, cols}), row = numbers({cols - 1}), column = numbers({9, 1});
    expect_slices(
        0, [=](Array x) { return square(left(x) - right(x)); }, x);
    expect_slices(
        0, [=](Array x) { return sum(square(left(x) - right(x)), 1); }, x);
    expect_slices(
        0,
        [=](Array x, Array row, Array column) {
          return left(x) * row + exp(right(x) * 0.01f) * column;
        },
        x, row, column);
    expect_slices(
        0, [=](Array x) { return softmax(left(x) * 0.1f) + right(x); }, x);
  }
}

TEST(FuseSlices, OuterDimsOfOnePitch) {
  const Array x = numbers({4, 6, 200}), y = numbers({3, 1, 5, 70});
  expect_slices(
      0,
      [](Array x) {
        return x[{range(), range(), range(3, 150)}] * 2.f + 1.f;
      },
      x);
  expect_slices(
      0,
      [](Array x) {
        return x[{range(1, 3), range(), range(3, 150)}] * 2.f + 1.f;
      },
      x);
  expect_slices(
      0,
      [](Array x) {
        return x[{range(1, 3), range(2, 5)}] * 2.f + 1.f;
      },
      x);
  expect_slices(
      0,
      [](Array y) {
        return y[{range(0, 2), range(), range(), range(2, 68)}] + 1.f -
               y[{range(1, 3), range(), range(), range(0, 66)}];
      },
      y);
}

// Slices that are not fused: of two pitches, of short rows, with steps, or used by others too.
TEST(FuseSlices, OthersAreMade) {
  const Array x = numbers({4, 6, 200});
  expect_slices(
      1,
      [](Array x) {
        return x[{range(), range(1, 4), range(3, 150)}] * 2.f + 1.f;
      },
      x);
  expect_slices(
      1,
      [](Array x) {
        return x[{range(), range(), range(3, 40)}] * 2.f + 1.f;
      },
      x);
  expect_slices(
      1,
      [](Array x) {
        return x[{range(), range(), range(0, 200, 2)}] * 2.f + 1.f;
      },
      x);
  expect_slices(
      1,
      [](Array x) {
        const Array part = x[{range(), range(), range(3, 150)}];
        return std::pair{part, part * 2.f + 1.f};
      },
      x);
  expect_same_under_jit(
      [](Array x) {
        return x[{range(), range(2, 2)}] * 2.f + 1.f;
      },
      Communication::no_more, x);
}

// A donated array of the slice's width is larger than the result, and is left alone until all of it
// has been read.
TEST(FuseSlices, OfDonatedArrays) {
  const auto f = [](Array x) {
    return x[{range(0, 9), range(1, 300)}] * x[{range(1, 10), range(0, 299)}] + 1.f;
  };
  const Array x = numbers({10, 300});
  const Array want = f(x);
  const auto donating = jit(f);
  for (int round = 0; round < 4; ++round) {
    Array given = x * 1.f;
    EXPECT_EQ(donating(std::move(given)).to_vector<float>(), want.to_vector<float>());
  }
}

TEST(FusedProgram, PartsHaveToLieInTheirArray) {
  FusedProgram program(3, 10);
  EXPECT_EQ(program.add_window(f32, {5, 20, 55}), 0);
  EXPECT_THROW(program.add_window(f32, {6, 20, 55}), ValueError);
  EXPECT_THROW(program.add_window(f32, {-1, 20, 55}), ValueError);
  EXPECT_THROW(program.add_window(f32, {0, 9, 55}), ValueError);
  const int y = program.add_map(neg_p, {0});
  program.add_output(y, ShapedArray({3, 10}, f32));
  EXPECT_EQ(program.text(), "[3,10] (a:f32[5::20]) b:f32 = neg a -> b");
}

}  // namespace
}  // namespace shmap::test
