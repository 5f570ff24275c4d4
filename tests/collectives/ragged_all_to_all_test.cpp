// shmap-test: devices
// ragged_all_to_all under vmap, of operands of all dtypes, and in a layer of experts against the
// same layer on one device. (Golden values: golden_ragged_all_to_all_test.cpp.)
#include <gtest/gtest.h>

#include <array>

#include "shmap/shmap.h"
#include "tests/support/device_grids.h"
#include "tests/support/error_text.h"
#include "tests/support/vmap_loop.h"

namespace shmap::test {
namespace {

using Indices = std::array<Array, 4>;

Array call(const Array& operand, const Array& output, const Indices& at, const Axes& axes,
           const RaggedAllToAllOptions& options = {}) {
  return ragged_all_to_all(operand, output, at[0], at[1], at[2], at[3], axes, options);
}

// ---- a layer of experts, one on each device: its tokens go to the devices of their experts, and
// come back.
Array before(const Array& sizes) { return cumsum(sizes, 0) - sizes; }
Array exchanged(const Array& x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); }

// x: the device's tokens [tokens, features]; to: the expert of each; w: the device's expert.
Array experts(const Array& x, const Array& to, const Array& w) {
  const int n = axis_size("i");
  const Array order = argsort(to);
  const Array send = sum(one_hot(to, n, i32), 0), receive = exchanged(send);
  const Array at = before(send), place = before(receive);
  const Array room = zeros({x.shape()[0] * n, x.shape()[1]}, x.dtype());
  const Array arrived =
      ragged_all_to_all(take(x, order, 0), room, at, send, exchanged(place), receive, "i");
  const Array done = tanh(matmul(arrived, w[0]));
  const Array back = ragged_all_to_all(done, zeros(x.shape(), x.dtype()), place, receive,
                                       exchanged(at), send, "i");
  return take(back, argsort(order), 0);
}

TEST(RaggedAllToAll, ALayerOfExpertsAsOnOneDevice) {
  const Array x = reshape(sin(arange(8 * 6 * 3, f64)), {48, 3});
  const Array w = reshape(cos(arange(8 * 3 * 3, f64) * 1.3), {8, 3, 3});
  std::vector<std::int32_t> chosen;
  for (int t = 0; t < 48; ++t) chosen.push_back(t < 6 ? 5 : t * t % 11 % 8);
  const Array to = array<std::int32_t>(chosen, {48});

  const auto mapped =
      shard_map(experts, mesh_in_all_processes({8}, "i"), {P("i"), P("i"), P("i")}, P("i"));
  const auto here = [&](Array a, Array b) { return mapped(a, to, b); };
  const auto dense = [&](Array a, Array b) {
    return tanh(einsum("td,tde->te", a, take(b, to, 0)));
  };
  const auto all = [](const auto& layer) {
    const auto loss = [layer](Array a, Array b) { return sum(layer(a, b) * sin(layer(a, b))); };
    return [layer, loss](Array a, Array b) {
      const auto [da, db] = grad<0, 1>(loss)(a, b);
      const auto slope = [loss](Array u, Array v) {
        const auto [du, dv] = grad<0, 1>(loss)(u, v);
        return sum(du * du) + sum(dv);
      };
      const auto [dda, ddb] = grad<0, 1>(slope)(a, b);
      return std::vector<Array>{layer(a, b), da, db, dda, ddb};
    };
  };
  const std::vector<Array> want = all(dense)(x, w);
  for (const auto& got : {all(here)(x, w), jit(all(here))(x, w)}) {
    for (std::size_t k = 0; k < want.size(); ++k)
      EXPECT_EQ(testing::array_diff(want[k], got[k], 1e-12), "") << k;
  }
}

// ---- vmap against a loop
Indices known_indices() {
  // Of a mesh of 4 x 2 devices, over "j": JAX's example in each row.
  const auto four = [](std::initializer_list<std::int32_t> of) {
    return tile(array<std::int32_t>(of, {4}), {4});
  };
  return {four({0, 1, 0, 1}), four({1, 2, 1, 1}), four({0, 0, 1, 2}), four({1, 1, 2, 1})};
}

TEST(RaggedAllToAll, VmapAsALoop) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const P split(axes("i", "j"));
  const Indices one = known_indices();
  for (const int rows : {3, 5}) {
    const Array operands = testing::test_values(ShapedArray({3, 8 * rows, 2}, f32), 1);
    const Array outputs = testing::test_values(ShapedArray({3, 8 * 4, 2}, f32), 2);
    Indices many;
    for (std::size_t k = 0; k < 4; ++k) many[k] = stack({one[k], one[k], 0 * one[k]});
    for (int mask = 1; mask < 64; ++mask) {
      if (mask >= 8 && mask % 5) continue;  // a part of the mixtures
      const auto is_mapped = [&](int k) { return (mask >> k & 1) != 0; };
      const auto both = shard_map(
          [&](Array x, Array y, Indices at) {
            const auto item = [&](const Array& a, int k, int b) {
              return is_mapped(k) ? testing::item_along(a, 0, b) : testing::item_along(a, 0, 0);
            };
            std::vector<Array> each;
            for (int b = 0; b < 3; ++b) {
              const auto size = [&](int k) {
                return item(at[static_cast<std::size_t>(k)], 2 + k, b);
              };
              each.push_back(
                  call(item(x, 0, b), item(y, 1, b), {size(0), size(1), size(2), size(3)}, "j"));
            }
            const auto whole = [&](const Array& a, int k) {
              return is_mapped(k) ? a : testing::item_along(a, 0, 0);
            };
            const auto dim = [&](int k) { return is_mapped(k) ? InAxes(0) : InAxes(none); };
            const Array batch =
                vmap([](Array p, Array q, Array a, Array b, Array c,
                        Array d) { return ragged_all_to_all(p, q, a, b, c, d, "j"); },
                     InAxes{dim(0), dim(1), dim(2), dim(3), dim(4), dim(5)})(
                    whole(x, 0), whole(y, 1), whole(at[0], 2), whole(at[1], 3), whole(at[2], 4),
                    whole(at[3], 5));
            return std::pair{stack(each), batch};
          },
          mesh, {P(none, axes("i", "j")), P(none, axes("i", "j")), P(none, axes("i", "j"))},
          P(none, axes("i", "j")));
      const auto [want, got] = both(operands, outputs, many);
      EXPECT_EQ(testing::array_diff(want, got, 0), "") << "operands " << mask << ", rows " << rows;
      const auto [want_jit, got_jit] = jit(both)(operands, outputs, many);
      EXPECT_EQ(testing::array_diff(want, got_jit, 0), "") << "under jit, operands " << mask;
    }
  }
}

// ---- operands
template <class F>
auto in_rows(F body) {
  const P split(axes("i", "j"));
  return shard_map(body, make_mesh({4, 2}, {"i", "j"}), {split, split, split}, split);
}

Array known_operand() { return tile(array<float>({1, 2, 2, 3, 4, 0}, {6}), {4}); }
Array known_result() { return tile(array<float>({1, 3, 0, 0, 2, 2, 4, 0}, {8}), {4}); }

TEST(RaggedAllToAll, IndicesOfEveryIntegerDtype) {
  for (const DType dtype : {i8, i16, i32, i64, u8, u16, u32, u64}) {
    const auto f = in_rows([&](Array x, Array y, Indices at) {
      for (Array& a : at) a = astype(a, dtype);
      at[3] = astype(at[3], u16);
      return call(x, y, at, "j");
    });
    const Array got = f(known_operand(), zeros({32}), known_indices());
    EXPECT_EQ(testing::array_diff(known_result(), got, 0), "") << to_string(dtype);
  }
}

// Offsets and sizes of 2^63 and more, as a subtraction of u64 makes them, are large and not
// negative.
TEST(RaggedAllToAll, OffsetsBeyondEveryArray) {
  constexpr std::uint64_t kMost = UINT64_MAX;
  struct {
    std::uint64_t from, size, to;
    std::array<float, 3> result;
  } const cases[] = {{kMost, 3, 0, {0, 0, 0}},  // -1 would reach rows 0 and 1
                     {0, 3, kMost, {0, 0, 0}},
                     {1, kMost, 0, {2, 3, 0}}};
  const auto f = in_rows([](Array x, Array y, Indices at) {
    return call(x, y, at, "j", {.axis_index_groups = {{0}, {1}}});
  });
  const auto eight = [](std::uint64_t of) { return tile(array<std::uint64_t>({of}, {1}), {8}); };
  for (const auto& [from, size, to, result] : cases) {
    const Array got = f(tile(array<float>({1, 2, 3}, {3}), {8}), zeros({24}),
                        Indices{eight(from), eight(size), eight(to), eight(size)});
    const Array want = tile(array<float>({result[0], result[1], result[2]}, {3}), {8});
    EXPECT_EQ(testing::array_diff(want, got, 0), "") << from << " " << size << " " << to;
  }
}

TEST(RaggedAllToAll, ElementsOfEveryDtype) {
  for (const DType dtype : {bool_, i8, u16, i64, f16, bf16, f64}) {
    const auto f = in_rows([](Array x, Array y, Indices at) { return call(x, y, at, "j"); });
    const Array got = f(astype(known_operand(), dtype), zeros({32}, dtype), known_indices());
    EXPECT_EQ(got.dtype(), dtype);
    EXPECT_EQ(testing::array_diff(astype(known_result(), dtype), got, 0), "") << to_string(dtype);
  }
  const auto bits = in_rows([](Array x, Array y, Indices at) {
    const auto keys = [](const Array& k) { return extend::random_wrap(k); };
    return extend::random_unwrap(call(keys(x), keys(y), at, "j"));
  });
  const auto pairs = [](const Array& x) { return astype(stack({x, x + 7.f}, 1), u32); };
  const Array filler = pairs(full({32}, 50.f));
  const Array got = bits(pairs(known_operand()), filler, known_indices());
  EXPECT_EQ(
      testing::array_diff(
          where(reshape(known_result(), {32, 1}) > 0.f, pairs(known_result()), filler), got, 0),
      "");
}

TEST(RaggedAllToAll, ArraysWithoutRows) {
  const auto rows = [](const Array& x) { return x[range(0, 0)]; };
  const auto f = in_rows([&](Array x, Array y, Indices at) {
    EXPECT_EQ(call(x, rows(y), at, "j").shape(), Shape({0}));
    return call(rows(x), y, at, "j");
  });
  const Array y = arange(32);
  EXPECT_EQ(testing::array_diff(y, f(known_operand(), y, known_indices()), 0), "");
}

TEST(RaggedAllToAll, TreesTravelWithOneExchangeOfOffsets) {
  const auto f = in_rows([](Array x, Array y, Indices at) {
    const std::vector<Array> got = ragged_all_to_all(
        std::vector<Array>{x, stack({x, -x}, 1), concatenate({x, x})},
        std::vector<Array>{y, stack({y, y}, 1), y}, at[0], at[1], at[2], at[3], "j");
    return got[0] + got[1][{range(), 0}] - got[1][{range(), 1}] + got[2];
  });
  const Array operand = known_operand();
  const Indices at = known_indices();
  reset_counters();
  const Array got = f(operand, zeros({32}), at);
  EXPECT_EQ(counters().collectives, 4u);  // the offsets, and three leaves
  EXPECT_EQ(testing::array_diff(known_result() * 4.f, got, 0), "");
}

// What the header says that the calls move.
TEST(RaggedAllToAll, MovesTheFewerRows) {
  if (process_count() > 1) GTEST_SKIP() << "counts the bytes of one process";
  const auto bytes = [](int operand_rows, int output_rows) {
    const auto f = in_rows([](Array x, Array y, Indices at) { return call(x, y, at, "j"); });
    const Array x = zeros({8 * operand_rows, 5}), y = zeros({8 * output_rows, 5});
    const Indices at = known_indices();
    reset_counters();
    f(x, y, at);
    return static_cast<int>(counters().collective_bytes);
  };
  constexpr int kOffsets = 8 * 32 * 2, kRow = 8 * 5 * 4;
  EXPECT_EQ(bytes(3, 4), kOffsets + 3 * kRow);
  EXPECT_EQ(bytes(4, 4), kOffsets + 4 * kRow);
  EXPECT_EQ(bytes(5, 4), kOffsets + 2 * 4 * kRow);
}

TEST(RaggedAllToAll, OperandsThatDoNotVaryAreCast) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto body = [](Array x, Array y, Indices at) {
    const Array z = call(x, y, at, "j");
    EXPECT_EQ(to_string(z.type()), "f32[4]{i,j}");
    return z;
  };
  const auto first = [](Array x, int parts) { return x[range(0, x.shape()[0] / parts)]; };
  const Indices known = known_indices();
  // operand is the same on all devices, output in each row of the mesh, sizes in each column.
  Indices at;
  for (std::size_t k = 0; k < 4; ++k) at[k] = first(known[k], 4);
  const auto f = shard_map(body, mesh, {P(), P("i"), P("j")}, P(axes("i", "j")));
  const Array got = f(first(known_operand(), 8), zeros({16}), at);
  EXPECT_EQ(testing::array_diff(tile(array<float>({1, 1, 0, 0, 2, 2, 2, 0}, {8}), {4}), got, 0),
            "");
  const auto strict =
      shard_map(body, mesh, {P(), P("i"), P("j")}, P(axes("i", "j")), {.auto_pbroadcast = false});
  expect_error<TypeError>(
      [&] { strict(first(known_operand(), 8), zeros({16}), at); },
      {"ragged_all_to_all", "does not vary over 'j'", "pbroadcast", "ragged_all_to_all_test.cpp"});
}

}  // namespace
}  // namespace shmap::test
