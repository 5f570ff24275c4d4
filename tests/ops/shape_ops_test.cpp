// shmap-test: devices
// Functions that change shape or order: which move data, which do not, and which calls are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ir/node.h"
#include "shmap/counters.h"
#include "shmap/eval_shape.h"
#include "shmap/jit.h"
#include "shmap/linalg.h"
#include "shmap/make_jaxpr.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

const void* data_of(const Array& x) { return stored_of(x)->blocks()[0].data(); }

TEST(Views, ShareTheBuffer) {
  const Array x = reshape(arange(24, i32), {4, 1, 6});
  const void* base = data_of(x);
  reset_counters();
  EXPECT_EQ(data_of(reshape(x, {2, -1})), base);
  EXPECT_EQ(data_of(expand_dims(x, {0, -1})), base);
  EXPECT_EQ(data_of(squeeze(x)), base);
  EXPECT_EQ(data_of(transpose(x, {1, 0, 2})), base);  // only a dim of one item moves
  EXPECT_EQ(data_of(broadcast_to(x, {1, 4, 1, 6})), base);
  EXPECT_EQ(data_of(bitcast(x, f32)), base);
  EXPECT_EQ(data_of(bitcast(x, u8)), base);
  const auto at = [&](std::int64_t k) {
    return static_cast<const void*>(static_cast<const std::byte*>(base) + 4 * k);
  };
  EXPECT_EQ(data_of(x[2]), at(12));
  EXPECT_EQ(data_of(x[range(1, 3)]), at(6));
  EXPECT_EQ(data_of((x[{3, 0, range(2, 5)}])), at(20));
  EXPECT_EQ(data_of(slice(x, {1, 0, 0}, {2, 1, 6})), at(6));
  EXPECT_EQ(data_of(dynamic_slice(x, {3, 0, 0}, {2, 1, 6})), at(12));  // clamped
  EXPECT_EQ(data_of(dynamic_index_in_dim(x, -1)), at(18));
  EXPECT_EQ(data_of(unstack(x)[3]), at(18));
  EXPECT_EQ(data_of(split(x, 2)[1]), at(12));
  const Counters c = counters();
  EXPECT_EQ(c.kernel_launches, 0);
  EXPECT_EQ(c.copied_bytes, 0);
  EXPECT_EQ(c.allocations, 0);
  EXPECT_THAT((x[{3, 0, range(2, 5)}].to_vector<std::int32_t>()), ElementsAre(20, 21, 22));
}

TEST(Views, OutliveTheirOrigin) {
  Array row;
  {
    const Array x = reshape(arange(12, i32), {3, 4});
    row = x[1];
  }
  const Array noise = zeros({3, 4}, i32);
  EXPECT_THAT(row.to_vector<std::int32_t>(), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ((noise + 1).size(), 12);
}

TEST(Views, AreNotWrittenWhileTheirOriginLives) {
  const Array x = arange(8, i32);
  Array half = x[range(0, 4)];
  half += 10;
  EXPECT_THAT(x.to_vector<std::int32_t>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(half.to_vector<std::int32_t>(), ElementsAre(10, 11, 12, 13));
}

TEST(Identities, LaunchNothing) {
  const Array x = reshape(arange(6, i32), {2, 3});
  reset_counters();
  EXPECT_EQ(transpose(x, {0, 1}).node(), x.node());
  EXPECT_EQ(reshape(x, {2, 3}).node(), x.node());
  EXPECT_EQ(tile(x, 1).node(), x.node());
  EXPECT_EQ(roll(x, 3, 1).node(), x.node());
  EXPECT_EQ(concatenate({x}, 1).node(), x.node());
  EXPECT_EQ(broadcast_to(x, {2, 3}).node(), x.node());
  EXPECT_EQ((x[{range(), range(0, 3)}].node()), x.node());
  EXPECT_EQ(counters().kernel_launches, 0);
}

TEST(Literals, AreOperandsOfRankZero) {
  EXPECT_EQ(reshape(2.f, {1, 1}).shape(), Shape({1, 1}));
  EXPECT_THAT(broadcast_to(3, {2}).to_vector<std::int32_t>(), ElementsAre(3, 3));
  EXPECT_THAT(expand_dims(3, 0).to_vector<std::int32_t>(), ElementsAre(3));
  EXPECT_THAT(stack({1, 2, 3}).to_vector<std::int32_t>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(stack({1, 2.5f}).to_vector<float>(), ElementsAre(1, 2.5f));
  EXPECT_THAT(tile(5, 3).to_vector<std::int32_t>(), ElementsAre(5, 5, 5));
  EXPECT_THAT(one_hot(2, 3).to_vector<float>(), ElementsAre(0, 0, 1));
  EXPECT_EQ(flip(4).item<std::int32_t>(), 4);
  EXPECT_EQ(transpose(4).item<std::int32_t>(), 4);
  EXPECT_EQ(bitcast(1.f, u32).item<std::uint32_t>(), 0x3f800000u);
  EXPECT_EQ(bitcast(1.f, u8).shape(), Shape({4}));
  EXPECT_EQ(take(arange(4), 9).to_vector<float>().size(), 1u);
}

// Operands alternate in the result, in one part and in several.
TEST(Stack, AlongTheLastDim) {
  for (const DType dtype : {u8, i16, f32, f64}) {
    for (const std::int64_t n : {1, 31, 100, 70001}) {
      for (int count = 1; count <= 5; ++count) {
        std::vector<Array> rows;
        for (int j = 0; j < count; ++j) rows.push_back(astype(arange(n) % 50 + 50 * j, dtype));
        std::vector<double> want;
        for (std::int64_t i = 0; i < n; ++i)
          for (int j = 0; j < count; ++j) want.push_back(static_cast<double>(i % 50 + 50 * j));
        const Array got = stack(rows, -1);
        EXPECT_EQ(got.shape(), (Shape{n, count}));
        EXPECT_EQ(astype(got, f64).to_vector<double>(), want) << n << " " << count;
      }
    }
  }
}

TEST(Empty, ArraysOfNoElementsHaveEveryOp) {
  const Array x = zeros({0, 3}, i32);
  EXPECT_EQ(reshape(x, {3, 0, 2}).shape(), Shape({3, 0, 2}));
  EXPECT_EQ(transpose(x).shape(), Shape({3, 0}));
  EXPECT_EQ(flip(x).shape(), Shape({0, 3}));
  EXPECT_EQ(concatenate({x, x}, 1).shape(), Shape({0, 6}));
  EXPECT_EQ(concatenate({x, ones({2, 3}, i32)}).to_vector<std::int32_t>().size(), 6u);
  EXPECT_THAT(pad(x, {{1, 1}, {0, 0}}, 7).to_vector<std::int32_t>(), ElementsAre(7, 7, 7, 7, 7, 7));
  EXPECT_EQ(tile(x, {2, 2}).shape(), Shape({0, 6}));
  EXPECT_EQ(repeat(ones({2}), 0, 0).shape(), Shape({0}));
  EXPECT_EQ(roll(x, 1).shape(), Shape({0, 3}));
  EXPECT_EQ((x[{range(), 1}].shape()), Shape({0}));
  EXPECT_EQ(take(x, zeros({0}, i32), 0).shape(), Shape({0, 3}));
  EXPECT_EQ(broadcast_to(ones({1, 3}), {0, 3}).shape(), Shape({0, 3}));
  EXPECT_EQ(dynamic_slice(x, {array<std::int32_t>({0}, {}), 0}, {0, 2}).shape(), Shape({0, 2}));
  EXPECT_EQ(dynamic_update_slice(x, zeros({0, 2}, i32), {0, 1}).shape(), Shape({0, 3}));
  EXPECT_EQ((x + 1).shape(), Shape({0, 3}));
}

// A number of the program is an operand in host memory, also on GPUs.
TEST(Pad, TakesANumber) {
  EXPECT_EQ(pad(Array(2.5f), {}, Array(1.f)).item<float>(), 2.5f);
  const auto f = jit([](Array x) { return x + pad(Array(3.5f), {}, Array(1.f)); });
  EXPECT_THAT(f(ones({3})).to_vector<float>(), ElementsAre(4.5f, 4.5f, 4.5f));
}

TEST(Errors, SayWhatIsWrongAndWhere) {
  const Array x = zeros({2, 3});
  expect_error<ValueError>(
      [&] {
        reshape(x, {-1, -1});
      },
      {"reshape", "(-1, -1)", "one extent may be -1", "shape_ops_test.cpp"});
  expect_error<ValueError>([&] { reshape(x, {4, -1}); }, {"reshape", "f32[2,3]", "6 elements"});
  expect_error<ValueError>([&] { reshape(x, {7}); },
                           {"reshape", "f32[2,3]", "6", "(7,)", "shape_ops_test.cpp"});
  expect_error<ValueError>([&] { reshape(x, {-2, -3}); }, {"negative extent"});
  expect_error<ValueError>([&] { transpose(x, {0, 0}); }, {"transpose", "given twice"});
  expect_error<ValueError>([&] { transpose(x, {0}); }, {"transpose", "(0,)", "exactly once"});
  expect_error<ValueError>([&] { swapaxes(x, 0, 2); },
                           {"swapaxes", "dim 2", "rank 2", "shape_ops_test.cpp"});
  expect_error<ValueError>([&] { squeeze(x, 0); }, {"squeeze", "dim 0", "extent 2"});
  expect_error<ValueError>([&] { expand_dims(x, 4); }, {"expand_dims", "dim 4"});
  expect_error<ValueError>([&] { broadcast_to(x, {3, 3}); }, {"broadcast_to", "(2, 3)", "(3, 3)"});
  expect_error<ValueError>([&] { broadcast_to(x, {3}); }, {"broadcast_to", "(2, 3)", "(3,)"});
  expect_error<ValueError>(
      [&] {
        broadcast_in_dim(x, {3, 2}, {1, 0});
      },
      {"broadcast_in_dim", "ascending"});
  expect_error<ValueError>(
      [&] {
        broadcast_in_dim(x, {2, 4}, {0, 1});
      },
      {"broadcast_in_dim", "extent 3", "extent 4"});
  expect_error<ValueError>(
      [&] {
        concatenate({x, zeros({2, 4})}, 0);
      },
      {"concatenate", "operand 1", "f32[2,4]", "dim 0", "shape_ops_test.cpp"});
  expect_error<ValueError>([&] { concatenate({}, 0); }, {"concatenate", "no arrays"});
  expect_error<ValueError>([&] { concatenate({Array(1), Array(2)}); }, {"concatenate", "rank 0"});
  expect_error<ValueError>([&] { stack({x, zeros({3, 2})}); }, {"stack", "array 1", "(3, 2)"});
  expect_error<ValueError>([&] { split(x, 2, 1); }, {"split", "extent 3", "2 sections"});
  expect_error<ValueError>([&] { pad(x, {{-1, 0}, {0, 0}}); }, {"pad", "-1"});
  expect_error<ValueError>([&] { pad(x, {{1, 0}, {0, 0}, {0, 0}}); }, {"pad", "3 pairs"});
  expect_error<ValueError>(
      [&] {
        slice(x, {0, 2}, {2, 4});
      },
      {"slice", "dim 1", "2 to 4", "shape_ops_test.cpp"});
  expect_error<ValueError>([&] { slice(x, {0}, {2}); }, {"slice", "every dim"});
  expect_error<ValueError>([&] { dynamic_slice(x, {0}, {1, 1}); }, {"dynamic_slice", "1 start:"});
  expect_error<ValueError>(
      [&] {
        dynamic_slice(x, {0, 0}, {3, 1});
      },
      {"dynamic_slice", "(3, 1)", "f32[2,3]"});
  expect_error<TypeError>(
      [&] {
        dynamic_slice(x, {zeros({}), 0}, {1, 1});
      },
      {"dynamic_slice", "dim 0", "f32[]", "integer scalar"});
  expect_error<TypeError>(
      [&] {
        dynamic_update_slice(x, ones({1, 1}, i32), {0, 0});
      },
      {"dynamic_update_slice", "i32[1,1]", "astype"});
  expect_error<ValueError>(
      [&] {
        dynamic_update_slice(x, ones({3, 1}), {0, 0});
      },
      {"dynamic_update_slice", "(3, 1)"});
  expect_error<TypeError>([&] { take(x, ones({2}), 0); }, {"take", "f32[2]", "astype"});
  expect_error<TypeError>([&] { take(x, ones({2}, bool_), 0); }, {"take", "where"});
  expect_error<ValueError>([&] { take(x, 0, 5); }, {"take", "dim 5"});
  expect_error<ValueError>([&] { linalg::norm(x, {.axis = Dims(std::vector{INT64_C(1) << 32})}); },
                           {"norm", "dim 4294967296"});
  expect_error<ValueError>(
      [&] {
        gather(x, zeros({1, 2}, i32), {{}, {0, 1}, {0}}, {1, 1});
      },
      {"gather", "start_index_map", "2 entries"});
  expect_error<ValueError>(
      [&] {
        gather(x, ones({1, 2}, i32), {{}, {0, 1}, {0, 0}}, {1, 1});
      },
      {"gather", "start_index_map", "each once"});
  expect_error<ValueError>([&] { roll(x, {1, 2, 3}, {0, 1}); }, {"roll", "3 shifts"});
  expect_error<ValueError>([&] { tile(x, {-1}); }, {"tile", "-1"});
  expect_error<ValueError>([&] { bitcast(zeros({2, 3}, u8), u32); }, {"bitcast", "u8[2,3]", "4"});
  expect_error<TypeError>([&] { bitcast(zeros({2}, u8), bool_); }, {"bitcast", "bool"});
  expect_error<ValueError>([&] { reshape(Array(), {2}); }, {"reshape", "empty Array"});
}

// Shifts are taken modulo the extent, as numpy.roll takes them; also those whose sum passes 63
// bits.
TEST(Roll, TakesShiftsOfAnySize) {
  const Array x = arange(7, i32);
  const auto rolled = [&](Dims shift) { return roll(x, shift).to_vector<std::int32_t>(); };
  // Python: -2**63 % 7 == 6, (2**63 - 1) % 7 == 0, (-2**63 - 2**63) % 7 == 5, 2**62 * 3 % 7 == 5
  EXPECT_EQ(rolled(INT64_MIN), rolled(6));
  EXPECT_EQ(rolled(INT64_MAX), rolled(0));
  EXPECT_EQ(rolled({INT64_MIN, INT64_MIN}), rolled(5));
  EXPECT_EQ(rolled({INT64_C(1) << 62, INT64_C(1) << 62, INT64_C(1) << 62}), rolled(5));
  EXPECT_EQ(rolled(INT64_C(1) << 32), rolled(4));
  const Array rows = reshape(x, {1, 7});
  EXPECT_EQ(roll(rows, {INT64_MIN, INT64_MIN}, {1, 1}).to_vector<std::int32_t>(), rolled(5));
  EXPECT_EQ(roll(rows, INT64_MIN, 1).to_vector<std::int32_t>(), rolled(6));
  EXPECT_EQ(roll(zeros({0, 3}), {INT64_MIN, INT64_MIN}).shape(), Shape({0, 3}));
  // More elements than half of 2^63 - 1: shift + extent would not fit either.
  const ShapedArray large({INT64_C(3) << 61}, u8);
  EXPECT_EQ(eval_shape([](const Array& a) {
              return roll(a, {-1, INT64_MIN, INT64_MAX});
            })(abstract_array(large))
                .type(),
            large);
}

// Extents and counts above 2^32, which an int would cut.
TEST(LargeExtents, AreNotCut) {
  constexpr std::int64_t kLarge = (INT64_C(1) << 32) + 2;
  const auto shape_of = [](auto f, const Shape& shape) {
    return eval_shape(f)(abstract_array(ShapedArray(shape, f32))).shape();
  };
  EXPECT_EQ(shape_of([](const Array& a) { return repeat(a, kLarge, 0); }, {3}),
            Shape({3 * kLarge}));
  EXPECT_EQ(shape_of([](const Array& a) { return repeat(a, kLarge); }, {1, 3}),
            Shape({3 * kLarge}));
  EXPECT_EQ(shape_of([](const Array& a) { return tile(a, kLarge); }, {3}), Shape({3 * kLarge}));
  EXPECT_EQ(shape_of([](const Array& a) { return one_hot(a, kLarge); }, {3}), Shape({3, kLarge}));
  EXPECT_EQ(shape_of([](const Array& a) { return slice(a, kLarge, 2 * kLarge); }, {3 * kLarge}),
            Shape({kLarge}));
  // Classes above 2^31 have numbers that i32 cannot hold.
  const auto classes = [](std::int64_t n) {
    return to_string(make_jaxpr([n](const Array& a) { return one_hot(a, n); })(zeros({3}, i32)));
  };
  EXPECT_NE(classes(kLarge).find("dtype=int64"), std::string::npos) << classes(kLarge);
  EXPECT_EQ(classes(8).find("int64"), std::string::npos) << classes(8);

  const Array x = reshape(arange(1, 7), {2, 3});
  expect_error<ValueError>([&] { sum(x, kLarge); }, {"sum", "dim 4294967298"});
  expect_error<ValueError>([&] { softmax(x, kLarge); }, {"softmax", "dim 4294967298"});
  expect_error<ValueError>([&] { split(x, kLarge); }, {"split", "4294967298 sections"});
  expect_error<ValueError>([&] { top_k(x, kLarge); }, {"top_k", "k=4294967298"});
}

TEST(LargeExtents, DiagonalsOutsideOfTheMatrixAreEmpty) {
  const Array x = reshape(arange(1, 7), {2, 3}), none_of_x = zeros({2, 3});
  for (const std::int64_t far : {INT64_C(3), INT64_C(1) << 32, INT64_MAX}) {
    EXPECT_EQ(tril(x, far).to_vector<float>(), x.to_vector<float>()) << far;
    EXPECT_EQ(triu(x, far).to_vector<float>(), none_of_x.to_vector<float>()) << far;
    EXPECT_EQ(diagonal(x, far).shape(), Shape({0})) << far;
    EXPECT_EQ(trace(x, far).item<float>(), 0) << far;
  }
  for (const std::int64_t far : {INT64_C(-2), -(INT64_C(1) << 32), INT64_MIN}) {
    EXPECT_EQ(tril(x, far).to_vector<float>(), none_of_x.to_vector<float>()) << far;
    EXPECT_EQ(triu(x, far).to_vector<float>(), x.to_vector<float>()) << far;
    EXPECT_EQ(diagonal(x, far).shape(), Shape({0})) << far;
    EXPECT_EQ(diag(x, far).shape(), Shape({0})) << far;
  }
  EXPECT_THAT(diagonal(x, 2).to_vector<float>(), ElementsAre(3));
  EXPECT_THAT(diagonal(x, -1).to_vector<float>(), ElementsAre(4));
  for (const std::int64_t far : {INT64_C(1) << 33, INT64_MIN, INT64_MAX})
    expect_error<ValueError>([&] { diag(ones({2}), far); },
                             {"diag", "more than 2^63 - 1 elements", "shape_ops_test.cpp"});
}

TEST(WeakTypes, PassThrough) {
  EXPECT_TRUE(reshape(full({4}, 1.f), {2, 2}).type().weak());
  EXPECT_TRUE(full({4}, 1.f)[range(0, 2)].type().weak());
  EXPECT_FALSE(ones({4})[0].type().weak());
  EXPECT_EQ((full({2}, 1.5) * ones({2})).dtype(), f32);
}

}  // namespace
}  // namespace shmap
