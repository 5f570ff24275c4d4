// shmap-test: devices
// Ops on arrays that are split over a mesh, outside of every body: the values are those of the
// whole array, whatever the spec, and jit's are the same, with the same communication or (of what
// is gathered twice) less; and shardings go through as the primitives' rules say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/ir/node.h"
#include "shmap/counters.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using Arrays = std::vector<Array>;
using Op = std::function<Arrays(const Array&)>;

const Mesh& mesh() {
  static const Mesh m = make_mesh({4, 2}, {"i", "j"});
  return m;
}

const Shape kShape = {8, 4, 6};

const std::vector<PartitionSpec>& specs() {
  static const std::vector<PartitionSpec> all = {P(),
                                                 P("i"),
                                                 P("j"),
                                                 P(none, "j"),
                                                 P("i", "j"),
                                                 P("j", "i"),
                                                 P(axes("i", "j")),
                                                 P(axes("j", "i")),
                                                 P(none, "i", "j"),
                                                 P(none, none, "j"),
                                                 P("i", none, "j")};
  return all;
}

const std::vector<std::pair<const char*, Op>>& ops() {
  static const auto row = [] { return array<std::int32_t>({2, 0, 3}, {3}); };
  static const auto at = [](int k) { return array<std::int32_t>({k}, {}); };
  static const std::vector<std::pair<const char*, Op>> all = {
      {"add",
       [](const Array& x) {
         return Arrays{x + x, x + 1, 2 - x};
       }},
      {"add_row",
       [](const Array& x) {
         return Arrays{x * arange(6, i32), arange(24, i32) + reshape(x, {8, 24})};
       }},
      {"where",
       [](const Array& x) {
         return Arrays{where(x > 90, x, 0), where(x % 2 == 0, 1, x)};
       }},
      {"unary",
       [](const Array& x) {
         return Arrays{-x, sign(x), square(x), x < 7, clip(x, 3, 100)};
       }},
      {"astype",
       [](const Array& x) {
         return Arrays{astype(x, f64), astype(x, i8), bitcast(x, f32), bitcast(x, i16)};
       }},
      {"reshape",
       [](const Array& x) {
         return Arrays{reshape(x, {192}),        reshape(x, {32, 6}),
                       reshape(x, {8, 24}),      reshape(x, {2, 4, 24}),
                       reshape(x, {4, 2, 4, 6}), reshape(x, {16, 12}),
                       reshape(x, {6, 4, 8}),    reshape(x, {1, 8, 4, 1, 6}),
                       reshape(x, {12, 16}),     reshape(x, {8, 2, 2, 3, 2})};
       }},
      {"transpose",
       [](const Array& x) {
         return Arrays{transpose(x), transpose(x, {1, 0, 2}), swapaxes(x, 0, 2), swapaxes(x, 1, 2)};
       }},
      {"dims",
       [](const Array& x) {
         return Arrays{expand_dims(x, {0, 2}), squeeze(expand_dims(x, 1)),
                       broadcast_to(x, {2, 8, 4, 6}), broadcast_in_dim(x, {8, 3, 4, 6}, {0, 2, 3}),
                       broadcast_to(reshape(x, {8, 1, 24}), {8, 5, 24})};
       }},
      {"join",
       [](const Array& x) {
         return Arrays{concatenate({x, x}),
                       concatenate({x, 2 * x, x}, 1),
                       concatenate({x, zeros({8, 4, 2}, i32)}, 2),
                       stack({x, x + 1}),
                       stack({x, x}, 2),
                       stack({x, x}, -1)};
       }},
      {"cut",
       [](const Array& x) {
         Arrays out = split(x, 2);
         for (const Array& a : split(x, {1, 3}, 1)) out.push_back(a);
         for (const Array& a : unstack(x, 2)) out.push_back(a);
         return out;
       }},
      {"slice",
       [](const Array& x) {
         return Arrays{slice(x, {0, 1, 2}, {8, 3, 6}), slice(x, {1, 0, 0}, {7, 4, 6}, {2, 1, 3}),
                       slice(x, {3, 0, 0}, {4, 4, 6}), slice(x, {0, 0, 0}, {8, 4, 6}, {1, 2, 1})};
       }},
      {"index",
       [](const Array& x) {
         return Arrays{x[3],
                       x[-1],
                       x[{range(), 2}],
                       x[{range(), range(), range(4, 0, -2)}],
                       x[{none, range(2, 6), -1}],
                       x[row()],
                       x[{range(), row()}],
                       x[at(5)],
                       x[{range(), at(-1)}],
                       x[{row(), 1, row()}],
                       x[{range(), row(), row()}]};
       }},
      {"dynamic",
       [](const Array& x) {
         return Arrays{dynamic_slice(x, {at(7), 0, at(1)}, {2, 4, 3}),
                       dynamic_slice(x, {0, at(2), 0}, {8, 2, 6}),
                       dynamic_index_in_dim(x, at(2), 1),
                       dynamic_index_in_dim(x, at(3), 0, false),
                       dynamic_update_slice(x, -ones({8, 1, 6}, i32), {0, at(9), 0}),
                       dynamic_update_slice(x, x[{range(0, 2), range(0, 2), range(0, 2)}],
                                            {at(4), at(1), at(3)}),
                       dynamic_update_slice(zeros({8, 4, 6}, i32), x, {0, 0, 0})};
       }},
      {"take",
       [](const Array& x) {
         return Arrays{take(x, row()), take(x, row(), 0),
                       take(x, reshape(x, {192})[range(0, 4)], 1), take(x, x % 6, 2),
                       take(arange(200, i32), x)};
       }},
      {"gather",
       [](const Array& x) {
         return Arrays{
             gather(x, array<int>({1, 0, 7, 3}, {2, 2}), {{1, 2, 3}, {}, {0, 1}}, {2, 2, 6}),
             gather(x, reshape(row(), {3, 1}), {{0, 2}, {1}, {1}}, {8, 1, 6})};
       }},
      {"repeat",
       [](const Array& x) {
         return Arrays{tile(x, 2), tile(x, {2, 1, 3}), tile(x, {3, 1, 1, 1}), repeat(x, 2, 0),
                       repeat(x, 3, 2)};
       }},
      {"pad",
       [](const Array& x) {
         return Arrays{pad(x, {{0, 0}, {1, 0}, {0, 0}}, 9), pad(x, {{1, 2}}),
                       pad(x, {{0, 0}, {0, 0}, {0, 3}}, -1)};
       }},
      {"order",
       [](const Array& x) {
         return Arrays{flip(x),    flip(x, 0),    flip(x, {1, 2}),
                       roll(x, 3), roll(x, 1, 0), roll(x, {1, -2}, {1, 2})};
       }},
      {"one_hot", [](const Array& x) { return Arrays{one_hot(x, 5, i8)}; }},
      {"like",
       [](const Array& x) {
         return Arrays{zeros_like(x) + x, full_like(x, 4) - x};
       }},
  };
  return all;
}

TEST(ShardedOps, GiveTheValuesOfTheWhole) {
  const Array x = reshape(arange(kShape.num_elements(), i32), kShape);
  for (const auto& [name, op] : ops()) {
    const Arrays want = op(x);
    for (const PartitionSpec& spec : specs()) {
      SCOPED_TRACE(std::string(name) + " of " + to_string(spec));
      const Arrays got = test::expect_same_under_jit([&op = op](const Array& y) { return op(y); },
                                                     test::Communication::no_more,
                                                     device_put(x, NamedSharding(mesh(), spec)));
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < got.size(); ++k) {
        SCOPED_TRACE("result " + std::to_string(k));
        ASSERT_EQ(got[k].type(), want[k].type());
        std::vector<std::byte> a(static_cast<std::size_t>(got[k].nbytes())), b(a.size());
        detail::host_copy(got[k], got[k].dtype(), a.data(), got[k].size(), {});
        detail::host_copy(want[k], want[k].dtype(), b.data(), want[k].size(), {});
        ASSERT_EQ(a, b);
      }
    }
  }
}

// Expects the sharding of the result, and that nothing was moved.
void expect_stays(const PartitionSpec& from, const Op& op, const PartitionSpec& to) {
  SCOPED_TRACE(to_string(from) + " to " + to_string(to));
  const Array x =
      device_put(reshape(arange(kShape.num_elements(), i32), kShape), NamedSharding(mesh(), from));
  reset_counters();
  const Array y = op(x).at(0);
  EXPECT_EQ(counters().copied_bytes, 0);
  EXPECT_EQ(y.sharding(), NamedSharding(mesh(), to));
}

TEST(ShardedOps, KeepWhatTheyCan) {
  const NamedSharding everywhere(mesh(), P());
  const Array one = device_put(array<int>({1}, {}), everywhere);
  const Array two = device_put(array<int>({1, 2}, {2}), everywhere);
  const auto unary = [](auto f) { return [f](const Array& x) { return Arrays{f(x)}; }; };
  expect_stays(P("i", "j"), unary([](const Array& x) { return x + 1; }), P("i", "j"));
  expect_stays(P("i", "j"), unary([](const Array& x) { return transpose(x); }), P(none, "j", "i"));
  expect_stays(P("i", "j"), unary([](const Array& x) { return expand_dims(x, 1); }),
               P("i", none, "j"));
  expect_stays(P("i"), unary([](const Array& x) { return reshape(x, {32, 6}); }), P("i"));
  expect_stays(P("i"), unary([](const Array& x) { return reshape(x, {4, 2, 24}); }), P("i"));
  expect_stays(P("j", none, none), unary([](const Array& x) { return reshape(x, {192}); }), P("j"));
  expect_stays(P(none, "i", "j"), unary([&](const Array& x) {
                 return reshape(x, {2, 4, 4, 6});
               }),
               P(none, none, "i", "j"));
  expect_stays(P("i", "j"), unary([&](const Array& x) {
                 return x[{range(), range(), 2}];
               }),
               P("i", "j"));
  expect_stays(P("i"), unary([](const Array& x) { return x[{range(), range(1, 3)}]; }), P("i"));
  expect_stays(P("i", "j"), unary([](const Array& x) { return flip(x, 2); }), P("i", "j"));
  expect_stays(P("i", "j"), unary([&](const Array& x) {
                 return pad(x, {{0, 0}, {0, 0}, {1, 1}});
               }),
               P("i", "j"));
  expect_stays(P("i", "j"), unary([&](const Array& x) {
                 return concatenate({x, x}, 2);
               }),
               P("i", "j"));
  expect_stays(P("i", "j"), unary([&](const Array& x) {
                 return broadcast_to(x, {3, 8, 4, 6});
               }),
               P(none, "i", "j"));
  expect_stays(P("i"), unary([&](const Array& x) {
                 return dynamic_slice(x, {0, one, 0}, {8, 2, 6});
               }),
               P("i"));
  expect_stays(P("i"), unary([&](const Array& x) { return take(x, two, 2); }), P("i"));
  expect_stays(P("i", "j"), unary([](const Array& x) { return bitcast(x, u8); }), P("i", "j"));
}

TEST(ShardedOps, AViewOfASplitArrayMovesNothing) {
  const Array x = device_put(reshape(arange(kShape.num_elements(), i32), kShape),
                             NamedSharding(mesh(), P("i")));
  reset_counters();
  const Array y = reshape(expand_dims(x, 0), {8, 24});
  EXPECT_EQ(counters().kernel_launches, 0);
  EXPECT_EQ(counters().allocations, 0);
  for (std::size_t p = 0; p < 8; ++p)
    EXPECT_EQ(stored_of(y)->blocks()[p].data(), stored_of(x)->blocks()[p].data());
}

TEST(ShardedOps, TheMostSplitOperandDecides) {
  const Array a = device_put(ones({8, 4}), NamedSharding(mesh(), P("j")));
  const Array b = device_put(ones({8, 4}), NamedSharding(mesh(), P("i", "j")));
  EXPECT_EQ((a + b).sharding(), NamedSharding(mesh(), P("i", "j")));
  EXPECT_EQ((b + a).sharding(), NamedSharding(mesh(), P("i", "j")));
}

// A sum of bools over devices is their "or".
TEST(ShardedOps, ProductsOfBoolsOverASplitDim) {
  const Array a = array<bool>({true, false, true, true, false, false, true, false}, {8});
  const Array b = array<bool>({false, false, true, false, false, true, false, false}, {8});
  const Array m = reshape(concatenate({a, b, b, a}), {4, 8});
  const NamedSharding split(mesh(), P(axes("i", "j"))), columns(mesh(), P(none, "i"));
  const auto dot_of = [](Array x, Array y) { return matmul(x, y); };
  const auto rows_of = [](Array x, Array y) { return einsum("ij,j->i", x, y); };
  const bool want = matmul(a, b).item<bool>();
  EXPECT_TRUE(want);
  const std::vector<bool> rows = matmul(m, b).to_vector<bool>();
  const Array x = device_put(a, split), y = device_put(b, split), z = device_put(m, columns);
  test::expect_same_under_jit(dot_of, test::Communication::same, x, y);
  test::expect_same_under_jit(rows_of, test::Communication::no_more, z, y);
  EXPECT_EQ(matmul(x, y).item<bool>(), want);
  EXPECT_EQ(rows_of(z, y).to_vector<bool>(), rows);
  EXPECT_EQ(jit(rows_of)(z, y).to_vector<bool>(), rows);
}

TEST(ShardedOps, UnstackAndSplitGatherOnce) {
  const Array whole = reshape(arange(64, i32), {8, 8});
  const Array x = device_put(whole, NamedSharding(mesh(), P("i", "j")));
  const auto gathers_of = [](auto f) {
    reset_counters();
    f();
    return counters().collectives;
  };
  std::vector<Array> items, pieces;
  EXPECT_EQ(gathers_of([&] { items = unstack(x); }), 1);
  EXPECT_EQ(gathers_of([&] { pieces = split(x, 4, 1); }), 1);
  // Along a dim that is not split nothing moves.
  EXPECT_EQ(gathers_of([&] { unstack(device_put(whole, NamedSharding(mesh(), P("i"))), 1); }), 0);
  ASSERT_EQ(items.size(), 8u);
  ASSERT_EQ(pieces.size(), 4u);
  for (int k = 0; k < 8; ++k)
    EXPECT_EQ(items[static_cast<std::size_t>(k)].to_vector<std::int32_t>(),
              whole[k].to_vector<std::int32_t>());
  for (int k = 0; k < 4; ++k)
    EXPECT_EQ(pieces[static_cast<std::size_t>(k)].to_vector<std::int32_t>(),
              slice(whole, {0, 2 * k}, {8, 2 * k + 2}).to_vector<std::int32_t>());
  EXPECT_EQ(items[0].sharding(), NamedSharding(mesh(), P("j")));
}

}  // namespace
}  // namespace shmap
