// shmap-test: devices
// x.at(...): what it refuses, donation, blocks in bodies, and derivatives and vmap of every kind of
// update against numbers and loops.
#include <gtest/gtest.h>

#include <cmath>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"
#include "tests/support/numeric_rules.h"
#include "tests/support/vmap_loop.h"

namespace shmap {
namespace {

using testing::Arrays;
using testing::spread_values;

constexpr int kKinds = 8;
Array update(int kind, const IndexedArray& at, const Array& y,
             GatherScatterMode mode = GatherScatterMode::fill_or_drop) {
  return kind == 0   ? at.set(y, mode)
         : kind == 1 ? at.add(y, mode)
         : kind == 2 ? at.mul(y, mode)
         : kind == 3 ? at.min(y, mode)
         : kind == 4 ? at.max(y, mode)
         : kind == 5 ? at.subtract(y, mode)
         : kind == 6 ? at.divide(y, mode)
                     : at.power(y, mode);
}

TEST(IndexedUpdate, LeavesTheArrayAsItWas) {
  const Array x = arange(6);
  const Array y = x.at(1).set(9);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 9, 2, 3, 4, 5}));
  EXPECT_EQ(y.type(), x.type());
  const auto at = x.at({range(0, 2)});
  EXPECT_EQ(at.set(7).to_vector<float>(), (std::vector<float>{7, 7, 2, 3, 4, 5}));
  EXPECT_EQ(at.get().to_vector<float>(), (std::vector<float>{0, 1}));
}

TEST(IndexedUpdate, OfTheSameElementTheLastIsKept) {
  const int n = 20000;
  std::vector<std::int32_t> places;
  std::vector<float> values, want(97, -1);
  for (int k = 0; k < n; ++k) {
    places.push_back((k * 31 + k / 7) % 97);
    values.push_back(static_cast<float>(k));
    want[static_cast<std::size_t>(places.back())] = values.back();
  }
  const Array x = full({97}, -1.f, f32);
  const Array out = x.at(array(places, {n})).set(array(values, {n}));
  EXPECT_EQ(out.to_vector<float>(), want);
}

// Threads share many updates of few elements. Integers are exact; floats have the same bits into
// another array, in place after the operation that makes the operand, and under jit.
TEST(IndexedUpdate, OfFewElementsManyAddUp) {
  const int n = 200001;
  std::vector<std::int32_t> places, values, want(97, 3);
  std::vector<float> fractions;
  for (int k = 0; k < n; ++k) {
    places.push_back((k * 31 + k / 7) % 97);
    values.push_back(k % 1001 - 450);
    fractions.push_back(static_cast<float>(values.back()) / 7);
    want[static_cast<std::size_t>(places.back())] += values.back();
  }
  const Array at = array(places, {n}), y = array(fractions, {n});
  EXPECT_EQ(full({97}, 3, i32).at(at).add(array(values, {n})).to_vector<std::int32_t>(), want);
  const Array x = arange(97), out = x.at(at).add(y);
  const auto sums = out.to_vector<float>();
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(sums[i], static_cast<float>(i) + static_cast<float>(want[i] - 3) / 7, 0.1f) << i;
  const auto f = jit([](Array x, Array at, Array y) { return (x * 2 - x).at(at).add(y) * 1; });
  for (int k = 0; k < 10; ++k) {
    Array z = x * 2 - x;
    z = std::move(z).at(at).add(y);
    EXPECT_EQ(z.to_vector<float>(), sums);
    EXPECT_EQ(f(x, at, y).to_vector<float>(), sums);
  }
}

TEST(IndexedUpdate, DonatesAnArrayGivenUp) {
  Array x = arange(1 << 12) + 1;
  x.block_until_ready();
  const Array at = array<std::int32_t>({3, 5}, {2});
  x = std::move(x).at(at).add(1);
  x.block_until_ready();
  reset_counters();
  x = std::move(x).at(at).add(1);
  x.block_until_ready();
  const auto donated = counters().allocations;
  reset_counters();
  const Array y = x.at(at).add(1);
  y.block_until_ready();
  EXPECT_LT(donated, counters().allocations);
  EXPECT_EQ((y - x).to_vector<float>()[3], 1);
}

// Each operation, with a box and with an index array, gives the bits of the operation on x[...].
TEST(IndexedUpdate, IsTheOperationOnWhatIsRead) {
  const Array x = spread_values(7, {6, 5}, 0.5, 2), y = spread_values(8, {3, 5}, 0.5, 2);
  const Array rows = array<std::int32_t>({4, 0, 3}, {3});
  for (const Index& at : {Index(range(1, 4)), Index(range(5, -7, -2)), Index(rows)}) {
    const Array old = x[at];
    EXPECT_TRUE(all(x.at(at).subtract(y)[at] == old - y).item<bool>());
    EXPECT_TRUE(all(x.at(at).divide(y)[at] == old / y).item<bool>());
    EXPECT_TRUE(all(x.at(at).power(y)[at] == pow(old, y)).item<bool>());
    EXPECT_TRUE(all(x.at(at).apply([](Array v) { return sin(v); })[at] == sin(old)).item<bool>());
    EXPECT_TRUE(all(x.at(at).divide(y).at(at).set(0) == x.at(at).set(0)).item<bool>());
  }
}

TEST(IndexedUpdate, AppliesInBodiesAndUnderJit) {
  const Mesh mesh = make_mesh({8}, "i");
  const Array rows = array<std::int32_t>({0, 2, 0, 5, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {16});
  const auto f = [](Array block, Array at) {
    return block.at(at).apply([](Array v) { return 2 * v + 1; });
  };
  const auto g = shard_map(f, mesh, {P("i"), P("i")}, P("i"));
  std::vector<float> want(24, 0);
  for (int r = 0; r < 8; ++r)  // each block names two of its elements; those of the third are gone
    for (int k = 0; k < 2; ++k) {
      const int at = std::vector<int>{0, 2, 0, 5, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}[2 * r + k];
      if (at < 3) want[3 * r + at] = 2 * want[3 * r + at] + 1;
    }
  EXPECT_EQ(g(zeros({24}), rows).to_vector<float>(), want);
  EXPECT_EQ(jit(g)(zeros({24}), rows).to_vector<float>(), want);
}

// apply refuses an empty function, and one whose result has another shape or dtype.
TEST(IndexedUpdate, RefusesFunctionsOfAnotherShapeOrDtype) {
  const Array x = zeros({4, 3});
  test::expect_error<ValueError>([&] { Array y = x.at(1).apply([](Array v) { return v[0]; }); },
                                 {"x.at(...).apply: its function returns f32[] for f32[3]",
                                  "elementwise", "indexed_update_test.cpp"});
  test::expect_error<TypeError>([&] { Array y = x.at(1).apply([](Array v) { return v > 0; }); },
                                {"x.at(...).apply: its function returns bool[3] for f32[3]"});
  test::expect_error<ValueError>([&] { Array y = x.at(1).apply(std::function<Array(Array)>()); },
                                 {"x.at(...).apply: an empty function", "indexed_update_test.cpp"});
  EXPECT_EQ(x.at({0, 1}).apply([](Array) { return 4; }).to_vector<float>()[1], 4);
}

TEST(IndexedUpdate, ModesOfIndicesOutOfRange) {
  const auto clip = GatherScatterMode::clip, drop = GatherScatterMode::fill_or_drop;
  const Array x = arange(4) + 1;
  const auto after = [&](const Array& at, GatherScatterMode mode) {
    return x.at(at).set(9, mode).to_vector<float>();
  };
  const std::vector<float> same{1, 2, 3, 4}, first{9, 2, 3, 4}, last{1, 2, 3, 9};
  EXPECT_EQ(after(array<std::int32_t>({-9}, {1}), drop), same);
  EXPECT_EQ(after(array<std::int32_t>({-9}, {1}), clip), first);
  EXPECT_EQ(after(array<std::uint8_t>({255}, {1}), clip), last);
  EXPECT_EQ(after(array<std::uint64_t>({~std::uint64_t{0}}, {1}), clip), last);
  EXPECT_EQ(after(array<std::uint64_t>({~std::uint64_t{0}}, {1}), drop), same);
  const std::vector<float> many(300, 1);
  EXPECT_EQ(
      array(many, {300}).at(array<std::uint8_t>({255}, {1})).set(2, clip).to_vector<float>()[255],
      2);
  for (int kind = 0; kind < kKinds; ++kind) {
    const Array far = array<std::int32_t>({7}, {1});
    EXPECT_EQ(update(kind, x.at(far), Array(3), drop).to_vector<float>(), same) << kind;
    EXPECT_EQ(update(kind, x.at(far), Array(3), clip).to_vector<float>(),
              update(kind, x.at(3), Array(3)).to_vector<float>())
        << kind;
  }
  const Array i = array<std::int32_t>({3, 4}, {2});
  EXPECT_EQ(x.at(i).get().to_vector<float>(), (std::vector<float>{4, 4}));
  EXPECT_EQ(x.at(i).get(drop, -1).to_vector<float>(), (std::vector<float>{4, -1}));
  EXPECT_TRUE(std::isnan(x.at(i).get(drop).to_vector<float>()[1]));
}

TEST(IndexedUpdate, OnBlocks) {
  const Mesh mesh = make_mesh({8}, "i");
  const auto f = shard_map(
      [](Array block) {
        return block.at({ellipsis, axis_index("i") % 3}).set(axis_index("i"));
      },
      mesh, P("i"), P("i"));
  const std::vector<float> got = f(zeros({8, 3})).to_vector<float>();
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 3; ++c)
      EXPECT_EQ(got[static_cast<std::size_t>(3 * r + c)], c == r % 3 ? r : 0) << r << " " << c;
}

TEST(IndexedUpdate, Refuses) {
  const Array x = zeros({4, 3});
  test::expect_error<ValueError>(
      [&] { Array y = x.at(4).set(1); },
      {"an index is out of range: 4 in dim 0 of extent 4 of an array of type f32[4,3]: "
       "wanted -4 ... 3"});
  test::expect_error<ValueError>(
      [&] {
        Array y = x.at({ellipsis, 0, ellipsis}).set(1);
      },
      {"an index with 2 ellipses"});
  test::expect_error<ValueError>([&] { Array y = x.at({0, 1, 2}).set(1); }, {"an index of 3 dims"});
  test::expect_error<TypeError>([&] { Array y = x.at(x).set(1); },
                                {"an index of type f32[4,3]: integers are wanted"});
  test::expect_error<ValueError>([&] { Array y = x.at(0).set(zeros({4})); }, {"x.at(...).set"});
  test::expect_error<ValueError>([&] { Array y = zeros({4}, u8).at(0).set(300); }, {"300"});
  test::expect_error<ValueError>([&] { Array y = Array().at(0).set(1); }, {"empty"});
  test::expect_error<ValueError>([&] { Array y = x.at(0).divide(zeros({4})); },
                                 {"x.at(...).divide"});
  test::expect_error<TypeError>([&] { Array y = astype(x, bool_).at(0).subtract(true); },
                                {"x.at(...).subtract: of an array of type bool[4,3]", "astype"});
  test::expect_error<TypeError>([&] { Array y = astype(x, bool_).at(0).power(true); },
                                {"x.at(...).power"});
  test::expect_error<ValueError>([&] { Array y = x.at(0).get(GatherScatterMode::clip, 1); },
                                 {"x.at(...).get: a fill value", "fill_or_drop"});
  test::expect_error<ValueError>([&] { Array y = x.at(4).get(GatherScatterMode::fill_or_drop); },
                                 {"out of range: 4"});
}

TEST(IndexedUpdate, Derivatives) {
  const Array places = array<std::int32_t>({2, 0, 2, 9, -1}, {5});
  for (int kind = 0; kind < kKinds; ++kind) {
    testing::RuleCase c;
    c.name = "update " + std::to_string(kind) + " at an index array";
    c.f = [=](const Arrays& in) { return Arrays{update(kind, in[0].at(places), in[1])}; };
    c.at = {spread_values(1, {4, 3}, 0.5, 2), spread_values(2, {5, 3}, 0.5, 2)};
    EXPECT_EQ(testing::check_rules(c), "") << c.name;
    c.name = "update " + std::to_string(kind) + " in steps";
    c.f = [=](const Arrays& in) {
      return Arrays{update(kind, in[0].at({range(-1, -9, -2), range(1, 3)}), in[1])};
    };
    c.at = {spread_values(3, {4, 3}, 0.5, 2), spread_values(4, {2, 2}, 0.5, 2)};
    EXPECT_EQ(testing::check_rules(c), "") << c.name;
  }
}

// Zeros among factors: the derivative is the product of the others.
TEST(IndexedUpdate, DerivativesOfProductsWithZeros) {
  const Array places = array<std::int32_t>({0, 0, 0, 1, 1}, {5});
  const auto f = [&](Array x, Array y) { return sum(x.at(places).mul(y)); };
  const Array x = array<double>({2, 3}, {2}), y = array<double>({5, 0, 7, 0, 0}, {5});
  const auto [dx, dy] = grad<0, 1>(f)(x, y);
  EXPECT_EQ(dx.to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(dy.to_vector<double>(), (std::vector<double>{0, 70, 0, 0, 0}));
}

TEST(IndexedUpdate, Vmap) {
  for (int kind = 0; kind < kKinds; ++kind) {
    testing::VmapCase c;
    c.name = "update " + std::to_string(kind);
    c.f = [=](const Arrays& in) {
      return Arrays{update(kind, in[0].at({in[1], range(0, 2)}), in[2])};
    };
    c.in = {ShapedArray({5, 3}, f32), ShapedArray({4}, i32), ShapedArray({4, 2}, f32)};
    EXPECT_EQ(testing::check_vmap(c), "") << c.name;
  }
}

}  // namespace
}  // namespace shmap
