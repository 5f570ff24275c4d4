// shmap-test: devices
// Rows and columns that are broadcast to the shape of a split array: each device broadcasts them
// only to the shape of its own part, and the values are those of eager operations, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Array numbers(const Shape& shape) { return sin(reshape(arange(shape.num_elements()), shape)); }

// The plan slices no array that a broadcast made.
template <class F, class... A>
void expect_no_cuts(F f, const A&... args) {
  expect_same_under_jit(f, Communication::no_more, args...);
  const auto jitted = jit(f);
  jitted(args...);
  EXPECT_THAT(jitted.plan_text(), Not(HasSubstr("pscatter")));
}

TEST(RepeatedParts, MeansOfSplitRows) {
  const Mesh mesh = make_mesh({4, 2}, axes("x", "y"));
  const auto normalized = [](Array x) {
    return (x - mean(x, 1, true)) * rsqrt(var(x, 1, true) + 1e-5f);
  };
  for (const auto& spec : {P("x", "y"), P("y", "x"), P(none, "y"), P(none, axes("x", "y"))}) {
    SCOPED_TRACE(to_string(spec));
    const Array x = device_put(numbers({24, 32}), NamedSharding(mesh, spec));
    expect_no_cuts(normalized, x);
    expect_same_under_jit(
        [&](Array x) { return grad([&](Array x) { return sum(normalized(x) * x); })(x); },
        Communication::no_more, x);
  }
}

TEST(RepeatedParts, RowsAndColumns) {
  const Mesh mesh = make_mesh({4, 2}, axes("x", "y"));
  const Array x = device_put(numbers({24, 32}), NamedSharding(mesh, P("x", "y")));
  const Array row = device_put(numbers({32}), NamedSharding(mesh, P()));
  const Array column = device_put(numbers({24, 1}), NamedSharding(mesh, P()));
  // The column is cut before it is repeated.
  const auto scaled = [](Array x, Array column) { return x * sum(column * 2.f, 1, true); };
  expect_same_under_jit(scaled, Communication::no_more, x, column);
  const auto jitted = jit(scaled);
  jitted(x, column);
  EXPECT_THAT(jitted.plan_text(), HasSubstr("f32[6,1]{x} = pscatter["));
  EXPECT_THAT(jitted.plan_text(), Not(HasSubstr("f32[24,32]")));
  expect_same_under_jit([](Array x, Array row) { return x + row * 2.f; }, Communication::no_more, x,
                        row);
}

}  // namespace
}  // namespace shmap::test
