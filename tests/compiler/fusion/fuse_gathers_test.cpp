// shmap-test: devices
// Gathers and scatters that count indices from the end themselves, and gathers that are reduced on
// the fly: values are those of eager operations, bit for bit.
#include "core/compiler/fusion/fuse_gathers.h"

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
  return astype(sin(reshape(arange(shape.num_elements()), shape)) * 50.f, dtype);
}

// Indices of a dim of that extent, counted from both ends, some of them out of bounds.
Array places(const Shape& shape, int extent, DType dtype = i32) {
  const Array all = reshape(arange(shape.num_elements(), i32), shape);
  return astype(remainder(all * 37 + 11, 2 * extent + 6) - (extent + 3), dtype);
}

bool fuses_gathers() { return make_mesh({1}, "i").impl()->backend().kind() == DeviceKind::cpu; }

int count_of(const std::string& word, const std::string& text) {
  int n = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// Compares with eager results, also on split arrays. On one device the plan must have `from_end`
// gathers and scatters that count from the end, `reduced` reduced gathers, and nothing else that
// reads the indices.
template <class F, class... A>
void expect_gathers(int from_end, int reduced, F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  if (!fuses_gathers()) return;
  const auto jitted = jit(f);
  jitted(args...);
  const std::string plan = jitted.plan_text();
  EXPECT_EQ(count_of("from_end=True", plan), from_end) << plan;
  EXPECT_EQ(count_of("gather_reduce[", plan), reduced) << plan;
  if (from_end > 0) {
    EXPECT_THAT(plan, Not(HasSubstr("select_n")));
  }
}

TEST(FuseGathers, IndicesFromTheEnd) {
  for (const DType dtype : {i32, i64}) {
    for (const int width : {1, 5, 64}) {
      SCOPED_TRACE(to_string(dtype) + std::to_string(width));
      expect_gathers(
          1, 0, [](Array x, Array ids) { return take(x, ids, 0); }, numbers({23, width}),
          places({700}, 23, dtype));
    }
    expect_gathers(
        1, 0, [](Array x, Array ids) { return x[ids]; }, numbers({1000}),
        places({1300}, 1000, dtype));
    expect_gathers(
        1, 0, [](Array x, Array ids) { return take(x, ids, 1); }, numbers({7, 19, 3}),
        places({4, 5}, 19, dtype));
    expect_gathers(
        1, 0, [](Array x, Array ids) { return take(x, ids); }, numbers({7, 19}, bf16),
        places({40}, 7 * 19, dtype));
  }
  // Indices of narrow dtypes are widened first; unsigned ones are never negative.
  expect_gathers(
      1, 0, [](Array x, Array ids) { return take(x, ids, 0); }, numbers({23, 4}),
      places({70}, 23, i8));
  expect_gathers(
      0, 0, [](Array x, Array ids) { return take(x, ids, 0); }, numbers({23, 4}),
      astype(remainder(arange(70, i32), 23), u32));
}

TEST(FuseGathers, IndicesOfGradientsAndUpdates) {
  const auto table_gradient = [](Array table, Array ids, Array bar) {
    return grad([&](Array t) { return sum(take(t, ids, 0) * bar); })(table);
  };
  for (const int width : {1, 8, 65}) {
    SCOPED_TRACE(width);
    for (const DType dtype : {i32, i64})
      expect_gathers(1, 0, table_gradient, numbers({41, width}), places({1100}, 41, dtype),
                     numbers({1100, width}));
  }
  expect_gathers(
      1, 0, [](Array x, Array ids, Array y) { return x.at({ids}).set(y); }, numbers({90, 3}),
      places({40}, 90), numbers({40, 3}));
  expect_gathers(
      1, 0, [](Array x, Array ids, Array y) { return x.at({ids}).max(y); }, numbers({90}),
      places({400}, 90), numbers({400}));
  // One gather forward and one scatter backward use the same indices.
  expect_gathers(
      2, 0,
      [](Array table, Array ids) {
        return grad([&](Array t) { return sum(square(take(t, ids, 0))); })(table);
      },
      numbers({30, 9}), places({50}, 30));
}

// Indices that others read too, of another extent, or of several dims are left as they are.
TEST(FuseGathers, OtherIndicesAreLeft) {
  const Array x = numbers({23, 9});
  expect_gathers(
      0, 0,
      [](Array x, Array ids) {
        const Array wrapped = reshape(where(ids < 0, ids + 22, ids), {70, 1});
        return gather(x, wrapped,
                      {.offset_dims = {1}, .collapsed_slice_dims = {0}, .start_index_map = {0}},
                      {1, 9});
      },
      x, places({70}, 23));
  expect_same_under_jit(
      [](Array x, Array i, Array j) {
        return x[{i, j}];
      },
      Communication::no_more, x, places({50}, 23), places({50}, 9));
  expect_same_under_jit(
      [](Array x, Array ids) {
        const Array wrapped = where(ids < 0, ids + 23, ids);
        return std::pair{take(x, ids, 0), wrapped};
      },
      Communication::no_more, x, places({50}, 23));
}

TEST(FuseGathers, BagsOfRows) {
  for (const DType dtype : {f32, f64, bf16, f16, i32}) {
    for (const auto& [bags, each, width] : std::vector<std::array<int, 3>>{
             {3, 1, 1}, {5, 16, 64}, {2, 7, 300}, {40, 3, 5}, {130, 2, 1000}, {2, 200, 17}}) {
      SCOPED_TRACE(to_string(dtype) + std::to_string(width));
      const int reduced = each > 1 ? 1 : 0;  // else there is nothing to reduce
      expect_gathers(
          1, reduced, [](Array t, Array ids) { return sum(take(t, ids, 0), 1); },
          numbers({50, width}, dtype), places({bags, each}, 50));
    }
  }
}

TEST(FuseGathers, OtherReductionsAndDims) {
  const Array table = numbers({50, 12});
  const Array ids = places({6, 4, 3}, 50);
  expect_gathers(
      1, 1, [](Array t, Array ids) { return mean(take(t, ids, 0), 1); }, table, ids);
  expect_gathers(
      1, 1, [](Array t, Array ids) { return max(take(t, ids, 0), 2); }, table, ids);
  expect_gathers(
      1, 1,
      [](Array t, Array ids) {
        return min(take(t, ids, 0), {1, 2});
      },
      table, ids);
  expect_gathers(
      1, 1, [](Array t, Array ids) { return prod(take(t, ids, 0), 3); }, table * 0.01f, ids);
  expect_gathers(
      1, 1,
      [](Array t, Array ids) {
        return sum(take(t, ids, 0), {1, 2, 3});
      },
      table, ids);
  expect_gathers(
      1, 1, [](Array t, Array ids) { return any(take(t > 49.f, ids, 0), 1); }, table, ids);
  // Several rows of a slice.
  for (const DType dtype : {f32, bf16}) {
    expect_gathers(
        1, 1,
        [](Array t, Array ids) {
          return sum(take(t, ids, 0), {1, 2});
        },
        numbers({50, 5, 70}, dtype), places({6, 3}, 50));
    expect_gathers(
        1, 1, [](Array t, Array ids) { return max(take(t, ids, 0), 1); },
        numbers({50, 5, 70}, dtype), places({6}, 50));
  }
}

// Slices that others read have to be stored. A reduction over all bags at once is not fused, nor
// are slices whose dims come before those of the indices.
TEST(FuseGathers, OthersAreStored) {
  const Array table = numbers({50, 12}), ids = places({6, 4}, 50);
  expect_gathers(
      1, 0,
      [](Array t, Array ids) {
        const Array rows = take(t, ids, 0);
        return std::pair{sum(rows, 1), rows};
      },
      table, ids);
  expect_gathers(
      1, 0, [](Array t, Array ids) { return sum(take(t, ids, 0), 0); }, table, ids);
  expect_gathers(
      1, 0, [](Array t, Array ids) { return sum(take(t, ids, 1), 1); }, table, places({6, 4}, 12));
}

}  // namespace
}  // namespace shmap::test
