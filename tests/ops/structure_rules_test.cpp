// Derivatives of functions that move elements (core/ops/shape.cpp, slicing.cpp, gather_ops.cpp,
// scatter.cpp) and of dot_general.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops/dot.h"
#include "core/ops/promote.h"
#include "core/ops/scatter.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/transforms/autodiff/linearize.h"
#include "core/transforms/autodiff/transpose.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/numeric_rules.h"

namespace shmap {
namespace {

using testing::Arrays;
using ::testing::ElementsAre;
using testing::spread_values;

Array rand64(const Shape& shape, unsigned seed = 1) { return spread_values(seed, shape, -1, 1); }
Array noise(const Shape& shape, DType dtype, unsigned seed) {
  return astype(rand64(shape, seed), dtype);
}
void check_derivatives(const testing::ArrayFn& f, const Arrays& at, int order = 2) {
  EXPECT_EQ(testing::check_rules({.name = "f", .f = f, .at = at, .order = order}), "");
}
Array ints(const std::vector<std::int32_t>& v, const Shape& shape) { return array(v, shape); }

TEST(ShapeRules, BroadcastInDim) {
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{broadcast_in_dim(x[0], {4, 2, 3}, {1, 2})};
      },
      {rand64({2, 3})});
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{broadcast_in_dim(x[0], {2, 5, 3}, {0, 2})};
      },
      {rand64({2, 1})});
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{broadcast_to(x[0], {3, 2})};
      },
      {rand64({})});
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{broadcast_to(x[0], {0, 2})};
      },
      {rand64({2})});
}

TEST(ShapeRules, ReshapeTransposeRev) {
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{reshape(x[0], {3, 4})};
      },
      {rand64({2, 6})});
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{transpose(x[0], {2, 0, 1})};
      },
      {rand64({2, 3, 4})});
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{flip(x[0], {0, 2})};
      },
      {rand64({2, 3, 4})});
}

TEST(ShapeRules, Concatenate) {
  const auto join = [](const Arrays& x) { return Arrays{concatenate({x[0], x[1], x[2]}, 1)}; };
  check_derivatives(join, {rand64({2, 3}), rand64({2, 0}), rand64({2, 1}, 3)});
  const auto with_constant = [](const Arrays& x) {
    return Arrays{concatenate({x[0], zeros({2}, x[0].dtype()), x[0]})};
  };
  check_derivatives(with_constant, {rand64({3})}, 1);
}

Array pad_of(const Array& x, const Array& value, IntList low, IntList high, IntList interior) {
  PadParams p;
  p.low = low;
  p.high = high;
  p.interior = interior;
  return bind(pad_p, x, value, p, {});
}

IntList list(std::initializer_list<int> v) {
  IntList out;
  for (int e : v) out.push_back(e);
  return out;
}

TEST(ShapeRules, Pad) {
  const auto pads = [](IntList low, IntList high, IntList interior) {
    return [=](const Arrays& x) { return Arrays{pad_of(x[0], x[1], low, high, interior)}; };
  };
  check_derivatives(pads(list({1, 0}), list({2, 0}), list({0, 0})), {rand64({2, 3}), rand64({})});
  check_derivatives(pads(list({1, 0}), list({2, 1}), list({2, 1})), {rand64({2, 3}), rand64({})});
  check_derivatives(pads(list({-1, 0}), list({2, -1}), list({0, 0})), {rand64({3, 3}), rand64({})});
  check_derivatives(pads(list({-1, 0}), list({-2, 1}), list({1, 2})), {rand64({4, 3}), rand64({})});
  check_derivatives(pads(list({1, 0}), list({2, 1}), list({3, 1})), {rand64({0, 3}), rand64({})});
}

// The cotangents of the padding are summed directly, not as a difference from the sum of all, which
// would lose their digits.
TEST(ShapeRules, PaddingValueKeepsItsDigits) {
  const Arrays args{ones({2}, f32), Array(0.f) + 0.f};
  const Arrays cts = testing::vjp_values(
      [](const Arrays& x) { return Arrays{pad_of(x[0], x[1], list({1}), list({0}), list({0}))}; },
      args, {array<float>({0.125f, 1e30f, 1e30f}, {3})});
  EXPECT_EQ(cts[1].item<float>(), 0.125f);
  EXPECT_THAT(cts[0].to_vector<float>(), ElementsAre(1e30f, 1e30f));
}

TEST(SlicingRules, Slice) {
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{slice(x[0], {1, 0}, {3, 2})};
      },
      {rand64({4, 3})});
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{slice(x[0], {1, 0}, {8, 3}, {3, 2})};
      },
      {rand64({9, 3})});
  check_derivatives([](const Arrays& x) { return Arrays{slice(x[0], {2}, {2})}; }, {rand64({4})});
}

TEST(SlicingRules, DynamicSlice) {
  for (int start : {0, 2, 7, -1, -9}) {  // clamped in the derivative as in the value
    const Array at = ints({start}, {}) + 0;
    check_derivatives(
        [&](const Arrays& x) {
          return Arrays{dynamic_slice(x[0], {at, Array(1)}, {2, 2})};
        },
        {rand64({4, 3})});
    check_derivatives(
        [&](const Arrays& x) {
          return Arrays{dynamic_update_slice(x[0], x[1], {at, Array(1)})};
        },
        {rand64({4, 3}), rand64({2, 2})});
  }
}

TEST(SlicingRules, StartsThatDependOnWhatIsDifferentiated) {
  const auto f = [](const Arrays& x) {
    return Arrays{dynamic_slice(x[0], {astype(x[1], i32)}, {2})};
  };
  const Arrays args{array<float>({1, 2, 3, 4}, {4}), array<float>({2.5f}, {})};
  const Arrays cts = testing::vjp_values(f, args, {array<float>({10, 20}, {2})});
  EXPECT_THAT(cts[0].to_vector<float>(), ElementsAre(0, 0, 10, 20));
  EXPECT_EQ(cts[1].item<float>(), 0.f);
}

TEST(GatherRules, Take) {
  const auto takes = [](const Array& indices, int axis) {
    return [=](const Arrays& x) { return Arrays{take(x[0], indices, axis)}; };
  };
  check_derivatives(takes(ints({2, 0, 2, -1}, {2, 2}), 0), {rand64({3, 4})});
  check_derivatives(takes(ints({2, 0, 2, -1}, {2, 2}), 1), {rand64({3, 4})});
  check_derivatives(
      [](const Arrays& x) {
        return Arrays{x[0][{ints({1, 1, 0}, {3}), range(), ints({0, 2, 0}, {3})}]};
      },
      {rand64({2, 2, 3})});
}

TEST(GatherRules, OutsideIsFilledAndHasNoDerivative) {
  const auto f = [](const Arrays& x) { return Arrays{take(x[0], ints({1, 5, 0}, {3}), 0)}; };
  const Arrays args{array<float>({1, 2}, {2})};
  EXPECT_TRUE(std::isnan(f(args)[0].to_vector<float>()[1]));
  EXPECT_THAT(testing::jvp_values(f, args, {array<float>({3, 4}, {2})})[0].to_vector<float>(),
              ElementsAre(4, 0, 3));
  const Arrays cts = testing::vjp_values(f, args, {array<float>({5, 6, 7}, {3})});
  EXPECT_THAT(cts[0].to_vector<float>(), ElementsAre(7, 5));
}

TEST(GatherRules, SlicesAndClip) {
  // Two-dimensional windows, moved inside where they leave the operand.
  const GatherDimensionNumbers numbers{.offset_dims = {1, 2}, .start_index_map = {0, 1}};
  check_derivatives(
      [&](const Arrays& x) {
        return Arrays{gather(x[0], ints({0, 0, 1, 1, 9, -4, 1, 0}, {4, 2}), numbers, {2, 2})};
      },
      {rand64({3, 4})});
}

TEST(ScatterAdd, AddsEachUpdateInOrder) {
  ScatterAddParams p;
  p.inserted_window_dims = {0};
  p.scatter_dims_to_operand_dims = {0};
  const auto add = [&](DType t, bool clip) {
    p.clip = clip;
    Array in[] = {astype(array<int>({1, 2, 3}, {3}), t), ints({2, 0, 2, 5, -1}, {5, 1}),
                  astype(array<int>({10, 20, 30, 40, 50}, {5}), t)};
    return astype(bind(scatter_add_p, in, p, {}), f32).to_vector<float>();
  };
  for (DType t : {i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64}) {
    EXPECT_THAT(add(t, false), ElementsAre(21, 2, 43)) << to_string(t);
    EXPECT_THAT(add(t, true), ElementsAre(71, 2, 83)) << to_string(t);
  }
}

// Enough for several parts, each of which copies and adds to its own elements.
TEST(ScatterAdd, OfManyElementsAsALoop) {
  constexpr int kRows = 300, kColumns = 257, kUpdates = 4000;
  const Array x = noise({kRows, kColumns}, f32, 1), u = noise({kUpdates, kColumns}, f32, 2);
  std::vector<std::int32_t> at(kUpdates);
  for (int k = 0; k < kUpdates; ++k) at[static_cast<std::size_t>(k)] = (k * 7919) % (kRows + 2);
  std::vector<float> want = x.to_vector<float>();
  const std::vector<float> updates = u.to_vector<float>();
  for (std::size_t k = 0; k < kUpdates; ++k) {
    if (at[k] >= kRows) continue;
    for (std::size_t c = 0; c < kColumns; ++c)
      want[static_cast<std::size_t>(at[k]) * kColumns + c] += updates[k * kColumns + c];
  }
  ScatterAddParams p;
  p.update_window_dims = {1};
  p.inserted_window_dims = {0};
  p.scatter_dims_to_operand_dims = {0};
  Array in[] = {x, ints(at, {kUpdates, 1}), u};
  EXPECT_EQ(bind(scatter_add_p, in, p, {}).to_vector<float>(), want);
  EXPECT_EQ(x.to_vector<float>(), noise({kRows, kColumns}, f32, 1).to_vector<float>());
  // In the memory of the operand.
  Array own[] = {x + 0.f, ints(at, {kUpdates, 1}), u};
  EXPECT_EQ(bind(scatter_add_p, own, p, {}).to_vector<float>(), want);
}

TEST(ScatterAdd, Derivatives) {
  ScatterAddParams p;
  p.update_window_dims = {1};
  p.inserted_window_dims = {0};
  p.scatter_dims_to_operand_dims = {0};
  for (bool clip : {false, true}) {
    p.clip = clip;
    check_derivatives(
        [&](const Arrays& x) {
          Array in[] = {x[0], ints({1, 1, 4, 0}, {4, 1}), x[1]};
          return Arrays{bind(scatter_add_p, in, p, {})};
        },
        {rand64({3, 4}), rand64({4, 4}, 2)});
  }
}

TEST(ScatterAdd, RefusesWhatDoesNotFit) {
  ScatterAddParams p;
  p.inserted_window_dims = {0};
  p.scatter_dims_to_operand_dims = {0};
  const auto add = [&](Array x, Array at, Array u) {
    return [=] {
      Array in[] = {x, at, u};
      bind(scatter_add_p, in, p, {});
    };
  };
  test::expect_error<TypeError>(add(ones({3}), ints({0}, {1, 1}), ones({1}, f64)),
                                {"scatter_add", "f64", "astype"});
  test::expect_error<TypeError>(add(ones({3}), ones({1, 1}), ones({1})), {"integers"});
  test::expect_error<ValueError>(add(ones({3}), ints({0}, {1, 1}), ones({2})), {"extent"});
  test::expect_error<ValueError>(add(ones({3}), ints({0, 0}, {1, 2}), ones({1})), {"entries"});
}

// ---- dot_general

TEST(DotRules, EveryArrangementOfDims) {
  const auto dots = [](DotDimensionNumbers numbers) {
    return [=](const Arrays& x) { return Arrays{dot_general(x[0], x[1], numbers)}; };
  };
  check_derivatives(dots({{{1}, {0}}, {{}, {}}}), {rand64({2, 3}), rand64({3, 4}, 2)});
  check_derivatives(dots({{{0}, {0}}, {{}, {}}}), {rand64({3, 2}), rand64({3, 4}, 2)});
  check_derivatives(dots({{{1}, {1}}, {{}, {}}}), {rand64({2, 3}), rand64({4, 3}, 2)});
  check_derivatives(dots({{{0}, {1}}, {{}, {}}}), {rand64({3, 2}), rand64({4, 3}, 2)});
  check_derivatives(dots({{{2}, {1}}, {{0}, {0}}}), {rand64({2, 3, 4}), rand64({2, 4, 5}, 2)});
  // Two contracted dims in another order on the right, batch dims that are not in front.
  check_derivatives(dots({{{0, 3}, {2, 1}}, {{2}, {3}}}),
                    {rand64({2, 3, 4, 5}), rand64({6, 5, 2, 4}, 2)});
  check_derivatives(dots({{{}, {}}, {{}, {}}}), {rand64({2}), rand64({3}, 2)});
  check_derivatives(dots({{{0}, {0}}, {{}, {}}}), {rand64({3}), rand64({3}, 2)});
  check_derivatives([](const Arrays& x) { return Arrays{matmul(x[0], x[1])}; },
                    {rand64({3, 1, 2, 4}), rand64({5, 4, 2}, 2)});
}

// A plain product's cotangents are plain products: no element is moved.
TEST(DotRules, CotangentsOfAMatrixProductNeedNoTranspose) {
  JaxprTrace trace("test", nullptr);
  TraceScope scope(trace);
  const Array x = trace.argument(ShapedArray({2, 3}, f32));
  const Array y = trace.argument(ShapedArray({3, 4}, f32));
  const Array w = trace.argument(ShapedArray({2, 4}, f32));
  Arrays cts =
      testing::vjp_values([](const Arrays& a) { return Arrays{matmul(a[0], a[1])}; }, {x, y}, {w});
  const std::string text = to_string(*trace.build(cts, "test", {}).jaxpr);
  EXPECT_EQ(text.find("transpose["), std::string::npos) << text;
}

// bf16 and f16 operands with an f32 result: the product with the cotangent is one of f32, rounded
// once, as in JAX.
TEST(DotRules, WiderResult) {
  for (DType t : {bf16, f16}) {
    DotParams p;
    p.lhs_contracting = {1};
    p.rhs_contracting = {0};
    p.preferred_element_type = f32;
    const auto f = [&](const Arrays& x) { return Arrays{bind_dot(x[0], x[1], p, {})}; };
    const Arrays args{noise({3, 5}, t, 1), noise({5, 2}, t, 2)};
    const Array w = noise({3, 2}, f32, 3);
    EXPECT_EQ(testing::jvp_values(f, args, {noise({3, 5}, t, 4), Array()})[0].dtype(), f32);
    const Arrays cts = testing::vjp_values(f, args, {w});
    const Array x = astype(args[0], f32), y = astype(args[1], f32);
    EXPECT_EQ(cts[0].dtype(), t);
    EXPECT_EQ(astype(cts[0], f32).to_vector<float>(),
              astype(astype(matmul(w, transpose(y)), t), f32).to_vector<float>());
    EXPECT_EQ(astype(cts[1], f32).to_vector<float>(),
              astype(astype(matmul(transpose(x), w), t), f32).to_vector<float>());
  }
}

TEST(DotRules, NotLinearInBothTogether) {
  JaxprTrace trace("test", nullptr);
  Array out;
  {
    TraceScope scope(trace);
    const Array x = trace.argument(ShapedArray({2, 2}, f32));
    out = matmul(x, x);
  }
  const Traced traced = trace.build(std::span(&out, 1), "test", {});
  test::expect_error<TypeError>(
      [&] {
        backward_pass(*traced.jaxpr, Arrays(1), {ones({2, 2})});
      },
      {"dot_general", "linear in each"});
}

}  // namespace
}  // namespace shmap
