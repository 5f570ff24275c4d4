// shmap-test: devices
// Slices of arguments at offsets that the host knows: which become views, and that plans with them
// give the results of the operations one by one.
#include "core/compiler/passes/place_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/compiler/passes/simplify.h"
#include "core/ir/nesting.h"
#include "core/ops/placed_slice.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int device_count() { return static_cast<int>(devices().size()); }
Mesh ring() { return make_mesh({device_count()}, "i"); }

// The pass on the body of a mapped function of an array whose second dim is split.
template <class F>
JaxprRef placed(F body, const ShapedArray& type) {
  const auto f = shard_map(body, ring(), {P(none, "i")}, P(none, "i"), {.check_vma = false});
  const ClosedJaxpr outer = make_jaxpr(f)(type);
  const Jaxpr& inner = *inner_jaxprs(*outer.impl().jaxpr->eqns.at(0).params).at(0);
  const JaxprRef made = place_slices(*simplify(inner), *ring().impl());
  typecheck_jaxpr(*made);
  return made;
}
int count(const Jaxpr& j, const std::string& name) {
  return static_cast<int>(std::count_if(j.eqns.begin(), j.eqns.end(),
                                        [&](const Eqn& e) { return e.primitive->name == name; }));
}

Array rows_of(const Array& x, const Array& at, std::int64_t rows) {
  return dynamic_slice(x, {at, 0}, {rows, x.shape()[1]});
}

// The sum of one slice per step of a device, each at another offset.
Array turning(Array x) {
  const int n = axis_size("i");
  const Array index = axis_index("i");
  const std::int64_t rows = x.shape()[0] / n;
  Array sum;
  for (int step = 0; step < n; ++step) {
    const Array part = sin(rows_of(x, (index - step - 1) % n * rows, rows)) * float(step + 1);
    sum = step == 0 ? part : sum + part;
  }
  return sum;
}

ShapedArray type(Shape shape) { return {shape, f32, false, AxisSet()}; }

TEST(PlaceSlices, OfARingAreViewsAndNothingComputesTheirPlaces) {
  const int n = device_count();
  const JaxprRef j = placed(turning, type({2 * n, 3 * n}));
  EXPECT_EQ(count(*j, "placed_slice"), n) << to_string(*j);
  EXPECT_EQ(count(*j, "dynamic_slice") + count(*j, "axis_index") + count(*j, "rem"), 0);
  int step = 0;
  for (const Eqn& e : j->eqns) {
    if (e.primitive != &placed_slice_p) continue;
    const auto& p = params_as<PlacedSliceParams>(*e.params);
    EXPECT_EQ(p.sizes, Shape({2, 3}));
    ASSERT_EQ(static_cast<int>(p.offsets.size()), n);
    for (int d = 0; d < n; ++d)
      EXPECT_EQ(p.offsets[static_cast<std::size_t>(d)], (d - step - 1 + 2 * n) % n * 2 * 3);
    ++step;
  }
}

TEST(PlaceSlices, WhatIsNoViewOfAnArgumentStays) {
  const int n = device_count();
  const ShapedArray whole = type({2 * n, 3 * n});
  // A value of the program, which a view would keep alive.
  EXPECT_EQ(count(*placed([](Array x) { return rows_of(x * 2, axis_index("i"), 1) + 1; }, whole),
                  "placed_slice"),
            0);
  // An offset that only the devices know.
  EXPECT_EQ(count(*placed(
                      [](Array x) {
                        return rows_of(x, astype(x[{0, 0}], i32), 1) + 1;
                      },
                      whole),
                  "placed_slice"),
            0);
  // The slices are not contiguous.
  EXPECT_EQ(count(*placed(
                      [](Array x) {
                        return dynamic_slice(x, {0, axis_index("i") % 2}, {x.shape()[0], 1}) + 1;
                      },
                      whole),
                  "placed_slice"),
            0);
  // Alone a result.
  EXPECT_EQ(
      count(*placed([](Array x) { return rows_of(x, axis_index("i"), 1); }, whole), "placed_slice"),
      0);
  // The array may be overwritten.
  EXPECT_EQ(count(*placed(
                      [](Array x) {
                        const Array part = rows_of(x, axis_index("i"), 1);
                        return dynamic_update_slice(x, part * 2, {Array(0), Array(0)});
                      },
                      whole),
                  "placed_slice"),
            0);
}

// Starts past the ends are clamped, to a different offset on each device.
Array clamped(Array x) {
  const Array start = axis_index("i") * 3 - 2;
  return exp(rows_of(x, start, 2)) - rows_of(x, 100 - start, 2) * 0.5f;
}

std::vector<float> values(const Array& x) { return x.to_vector<float>(); }

template <class F>
void expect_as_eager(F body, const Shape& shape) {
  const auto mapped = shard_map(body, ring(), {P(none, "i")}, P(none, "i"), {.check_vma = false});
  const auto planned = jit(mapped);
  for (int call = 0; call < 6; ++call) {
    // Each call has another argument, which every second call donates.
    const Array numbers = astype(arange(shape.num_elements()), f32) / (10.f + float(call));
    Array x = device_put(reshape(numbers, shape), NamedSharding(ring(), P(none, "i")));
    const std::vector<float> before = values(x);
    const std::vector<float> want = values(mapped(x));
    if (call % 2 == 0) {
      EXPECT_EQ(values(planned(x)), want) << "call " << call;
      EXPECT_EQ(values(x), before);
    } else {
      EXPECT_EQ(values(planned(std::move(x))), want) << "call " << call;
    }
  }
  EXPECT_THAT(planned.plan_text(), HasSubstr("placed_slice"));
  EXPECT_THAT(planned.plan_text(), Not(HasSubstr("dynamic_slice")));
}

TEST(PlaceSlices, GiveWhatTheyGiveEagerly) {
  const std::int64_t n = device_count();
  expect_as_eager(turning, {8 * n, 5 * n});
  expect_as_eager(clamped, {4, 3 * n});
}

// The result is a view of the argument, and outlives the caller's handle to it.
TEST(PlaceSlices, AResultMayBeAViewOfThem) {
  const std::int64_t n = device_count();
  const auto body = [](Array x) { return reshape(rows_of(x, axis_index("i"), 1), {x.shape()[1]}); };
  const auto mapped = shard_map(body, ring(), {P(none, "i")}, P("i"), {.check_vma = false});
  const auto planned = jit(mapped);
  for (int call = 0; call < 4; ++call) {
    Array x = device_put(reshape(arange(n * 3 * n), {n, 3 * n}) + float(call),
                         NamedSharding(ring(), P(none, "i")));
    const std::vector<float> want = values(mapped(x));
    const Array got = planned(std::move(x));
    const Array others =
        planned(device_put(zeros({n, 3 * n}), NamedSharding(ring(), P(none, "i"))));
    EXPECT_EQ(values(got), want) << call;
  }
}

}  // namespace
}  // namespace shmap
