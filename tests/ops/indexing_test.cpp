// shmap-test: devices
// x[...] beside a plain reading of NumPy's rules, on random shapes and indices; and gathers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <random>

#include "shmap/counters.h"
#include "shmap/grad.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/shard_map.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

// The items that one entry takes of a dim, and whether the dim stays.
struct Taken {
  std::vector<std::int64_t> items;
  bool kept = true;
};

// Python's range(*slice(start, stop, step).indices(n)).
std::vector<std::int64_t> slice_items(std::int64_t start, std::int64_t stop, std::int64_t step,
                                      std::int64_t n) {
  const auto clip = [&](std::int64_t v) {
    if (v < 0) v += n;
    const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    return v < low ? low : v > high ? high : v;
  };
  std::vector<std::int64_t> items;
  for (std::int64_t i = clip(start); step > 0 ? i < clip(stop) : i > clip(stop); i += step)
    items.push_back(i);
  return items;
}

struct Case {
  Shape shape, result_shape;
  std::vector<Index> index;
  std::vector<std::int32_t> result;
  std::string text;
};

Case make_case(std::mt19937& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Case c;
  std::vector<Taken> taken;
  const std::int64_t rank = pick(1, 4);
  for (std::int64_t d = 0; d < rank; ++d) c.shape.push_back(2 * pick(1, 3));
  const std::int64_t given = pick(1, rank);
  for (std::int64_t d = 0; d < given; ++d) {
    const std::int64_t n = c.shape[static_cast<std::size_t>(d)];
    if (pick(0, 4) == 0) {
      c.index.emplace_back(none);
      c.text += " none";
      c.result_shape.push_back(1);
    }
    switch (pick(0, 3)) {
      case 0: {
        const std::int64_t i = pick(-n, n - 1);
        // Half of them are known on the device only.
        if (pick(0, 1)) {
          c.index.emplace_back(i);
        } else {
          c.index.emplace_back(array<std::int64_t>({i}, {}));
        }
        c.text += " " + std::to_string(i);
        taken.push_back({{i < 0 ? i + n : i}, false});
        break;
      }
      case 1:
        c.index.emplace_back(range());
        c.text += " :";
        taken.push_back({slice_items(0, n, 1, n)});
        break;
      default: {
        const std::int64_t start = pick(-n - 2, n + 2), stop = pick(-n - 2, n + 2);
        const std::int64_t step = pick(0, 1) ? pick(1, 3) : -pick(1, 3);
        c.index.emplace_back(range(start, stop, step));
        c.text +=
            " " + std::to_string(start) + ":" + std::to_string(stop) + ":" + std::to_string(step);
        taken.push_back({slice_items(start, stop, step, n)});
      }
    }
    if (taken.back().kept)
      c.result_shape.push_back(static_cast<std::int64_t>(taken.back().items.size()));
  }
  for (std::int64_t d = given; d < rank; ++d) {
    const std::int64_t n = c.shape[static_cast<std::size_t>(d)];
    taken.push_back({slice_items(0, n, 1, n)});
    c.result_shape.push_back(n);
  }
  std::vector<std::int64_t> flat = {0};
  for (std::size_t d = 0; d < taken.size(); ++d) {
    std::vector<std::int64_t> next;
    for (std::int64_t at : flat)
      for (std::int64_t i : taken[d].items) next.push_back(at * c.shape[d] + i);
    flat = std::move(next);
  }
  c.result.assign(flat.begin(), flat.end());
  return c;
}

Array indexed(const Array& x, const std::vector<Index>& i) {
  switch (i.size()) {
    case 1:
      return x[i[0]];
    case 2:
      return x[{i[0], i[1]}];
    case 3:
      return x[{i[0], i[1], i[2]}];
    case 4:
      return x[{i[0], i[1], i[2], i[3]}];
    case 5:
      return x[{i[0], i[1], i[2], i[3], i[4]}];
    case 6:
      return x[{i[0], i[1], i[2], i[3], i[4], i[5]}];
    case 7:
      return x[{i[0], i[1], i[2], i[3], i[4], i[5], i[6]}];
    default:
      return x[{i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7]}];
  }
}

TEST(BasicIndex, FollowsNumPy) {
  std::mt19937 random(7);
  const Mesh mesh = make_mesh({2, 2}, {"i", "j"});
  for (int k = 0; k < 400; ++k) {
    const Case c = make_case(random);
    SCOPED_TRACE("shape " + to_string(c.shape) + " index" + c.text);
    Array x = reshape(arange(c.shape.num_elements(), i32), c.shape);
    if (k % 2) {
      const PartitionSpec spec =
          c.shape.rank() > 1 && k % 4 == 1 ? PartitionSpec("i", "j") : PartitionSpec("j");
      x = device_put(x, NamedSharding(mesh, spec));
    }
    const Array y = indexed(x, c.index);
    ASSERT_EQ(y.shape(), c.result_shape);
    ASSERT_EQ(y.to_vector<std::int32_t>(), c.result);
  }
}

TEST(BasicIndex, RangesWrittenAsAggregates) {
  const Array x = arange(6, i32);
  EXPECT_THAT(x[(Range{1, 3})].to_vector<std::int32_t>(), ElementsAre(1, 2));
  EXPECT_THAT(x[(Range{.start = 4})].to_vector<std::int32_t>(), ElementsAre(4, 5));
  EXPECT_THAT(x[(Range{.step = 4})].to_vector<std::int32_t>(), ElementsAre(0, 4));
  EXPECT_THAT(x[Range()].to_vector<std::int32_t>(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(zeros({0, 2})[range()].shape(), Shape({0, 2}));
}

TEST(BasicIndex, StepsBeyondAnyExtent) {
  const Array x = arange(6, i32);
  const auto first = [](Array v) { return v[range(2, 6, INT64_MAX)]; };
  EXPECT_THAT(first(x).to_vector<std::int32_t>(), ElementsAre(2));
  EXPECT_THAT(x[range(4, -7, INT64_MIN)].to_vector<std::int32_t>(), ElementsAre(4));
  EXPECT_EQ(x[range(2, 4, INT64_MIN)].size(), 0);
  EXPECT_THAT(x.at(range(2, 6, INT64_MAX)).set(9).to_vector<std::int32_t>(),
              ElementsAre(0, 1, 9, 3, 4, 5));
  EXPECT_THAT(x.at(range(4, -7, INT64_MIN)).set(9).to_vector<std::int32_t>(),
              ElementsAre(0, 1, 2, 3, 9, 5));
  EXPECT_THAT(slice(x, {2}, {6}, {INT64_MAX}).to_vector<std::int32_t>(), ElementsAre(2));
  const auto total = [](Array v) { return sum(slice(v, {2}, {6}, {INT64_MAX})); };
  EXPECT_THAT(grad(total)(arange(6)).to_vector<float>(), ElementsAre(0, 0, 1, 0, 0, 0));
}

TEST(BasicIndex, NamesWhatIsOutOfRange) {
  const Array x = zeros({2, 3});
  expect_error<ValueError>([&] { x[2]; },
                           {"2", "dim 0", "extent 2", "f32[2,3]", "-2 ... 1", "indexing_test.cpp"});
  expect_error<ValueError>([&] { x[{0, -4}]; }, {"-4", "dim 1", "extent 3"});
  expect_error<ValueError>([&] { x[{0, 0, 0}]; }, {"3 dims", "f32[2,3]", "2"});
  expect_error<ValueError>([&] { x[range(0, 2, 0)]; }, {"step of 0"});
  expect_error<TypeError>([&] { x[ones({2}, bool_)]; }, {"bool", "where(mask"});
  expect_error<TypeError>([&] { x[ones({2})]; }, {"f32[2]", "integers"});
  expect_error<ValueError>([&] { zeros({0, 2})[array<int>({0}, {1})]; }, {"no elements"});
  expect_error<ValueError>(
      [&] {
        (x[{array<int>({0, 1}, {2}), array<int>({0, 1, 2}, {3})}]);
      },
      {"(2,)", "(3,)", "indexing_test.cpp"});
}

TEST(InDim, NamesWhatIsWrong) {
  const Array x = zeros({2, 3});
  EXPECT_EQ(index_in_dim(x, -3, 1).shape(), Shape({2, 1}));
  EXPECT_EQ(index_in_dim(x, 2, -1, false).shape(), Shape({2}));
  expect_error<ValueError>(
      [&] { index_in_dim(x, 3, 1); },
      {"index_in_dim", "index 3", "dim 1", "f32[2,3]", "-3 to 2", "indexing_test.cpp"});
  expect_error<ValueError>([&] { index_in_dim(x, -3); }, {"index -3", "dim 0", "-2 to 1"});
  expect_error<ValueError>([&] { index_in_dim(zeros({0, 2}), 0); }, {"no elements"});
  expect_error<ValueError>([&] { index_in_dim(x, 0, 2); }, {"index_in_dim", "dim 2"});
  expect_error<ValueError>(
      [&] { dynamic_update_index_in_dim(x, 0.f, 1); },
      {"dynamic_update_index_in_dim", "rank 2", "rank 1", "without dim 0", "indexing_test.cpp"});
  expect_error<ValueError>([&] { dynamic_update_index_in_dim(x, zeros({4}), 1); },
                           {"(1, 4)", "f32[2,3]"});
  expect_error<ValueError>([&] { dynamic_update_index_in_dim(x, zeros({3}), 1, -3); },
                           {"dynamic_update_index_in_dim", "dim -3"});
  expect_error<TypeError>([&] { dynamic_update_index_in_dim(x, zeros({3}), 1.f); }, {"f32"});
  // A host number is converted to the dtype, and is a valid item of an array of one dim only.
  EXPECT_THAT(dynamic_update_index_in_dim(arange(3, i32), 7, -1).to_vector<std::int32_t>(),
              ElementsAre(0, 1, 7));
}

TEST(ArrayIndex, GathersAlongOneDim) {
  const Array x = reshape(arange(12, i32), {4, 3});
  EXPECT_THAT(x[array<int>({3, 0, -1}, {3})].to_vector<int>(),
              ElementsAre(9, 10, 11, 0, 1, 2, 9, 10, 11));
  EXPECT_THAT((x[{range(), array<int>({2, 0}, {2})}].to_vector<int>()),
              ElementsAre(2, 0, 5, 3, 8, 6, 11, 9));
  EXPECT_EQ((x[{none, array<int>({0, 1, 2, 3}, {2, 2}), none}].shape()), Shape({1, 2, 2, 1, 3}));
  // Out of range is clamped when read by an index, and filled by take.
  EXPECT_THAT(x[array<int>({9, -9}, {2})].to_vector<int>(), ElementsAre(9, 10, 11, 0, 1, 2));
  EXPECT_THAT(take(x, array<int>({9}, {1}), 0).to_vector<int>(),
              ElementsAre(INT32_MIN, INT32_MIN, INT32_MIN));
}

TEST(ArrayIndex, BroadcastsSeveral) {
  const Array x = reshape(arange(24, i32), {2, 3, 4});
  const Array rows = array<int>({0, 1}, {2, 1}), columns = array<std::uint8_t>({2, 0, 1}, {3});
  EXPECT_THAT((x[{rows, columns, 0}].to_vector<int>()), ElementsAre(8, 0, 4, 20, 12, 16));
  EXPECT_EQ((x[{rows, range(), columns}].shape()), Shape({2, 3, 3}));  // apart: in front
  EXPECT_EQ((x[{range(), rows, columns}].shape()), Shape({2, 2, 3}));
  EXPECT_THAT((x[{rows, -1, columns}].to_vector<int>()), ElementsAre(10, 8, 9, 22, 20, 21));
}

// All indices of a gather are of one dtype, and i64 does not hold the largest ones of u64.
TEST(ArrayIndex, ClipsTheLargestIndices) {
  const Array x = reshape(arange(6, i32), {2, 3});
  const Array rows = array<std::uint64_t>({0, ~std::uint64_t{0}}, {2});
  const Array columns = array<std::uint64_t>({std::uint64_t{1} << 63, 1}, {2});
  EXPECT_THAT((x[{rows, columns}].to_vector<int>()), ElementsAre(2, 4));
  const auto drop = GatherScatterMode::fill_or_drop;
  EXPECT_THAT((x.at({rows, columns}).get(drop, -1).to_vector<int>()), ElementsAre(-1, -1));
  EXPECT_THAT((x.at({rows, array<int>({1, 1}, {2})}).get(drop, -1).to_vector<int>()),
              ElementsAre(1, -1));
}

TEST(ArrayIndex, ReadsThroughStartsOfABlock) {
  // Each device takes the row that its own block selects.
  const Mesh mesh = make_mesh({4}, {"i"});
  const Array table = reshape(arange(8, i32), {4, 2});
  auto f = shard_map(
      [&](Array row) {
        const Array y = table[row[0]];
        EXPECT_EQ(y.vma(), std::vector<std::string>{"i"});
        return expand_dims(y, 0);
      },
      mesh, P("i"), P("i"));
  EXPECT_THAT(f(array<int>({3, 0, -1, 1}, {4})).to_vector<int>(),
              ElementsAre(6, 7, 0, 1, 6, 7, 2, 3));
  auto g = shard_map([&](Array row) { return table[row]; }, mesh, P("i"), P("i"));
  EXPECT_THAT(g(array<int>({3, 0, -1, 1}, {4})).to_vector<int>(),
              ElementsAre(6, 7, 0, 1, 6, 7, 2, 3));
}

TEST(Take, OfALargeTableInParts) {
  const std::int64_t n = 5000, width = 64;
  const Array table = reshape(arange(n * width, i32), {n, width});
  std::vector<std::int32_t> ids(20000);
  std::mt19937 random(3);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % n);
  const std::vector<std::int32_t> out =
      take(table, array<std::int32_t>(ids, {20000}), 0).to_vector<std::int32_t>();
  for (std::size_t k = 0; k < ids.size(); ++k)
    for (std::size_t c : {0, 63})
      ASSERT_EQ(out[k * 64 + c], ids[k] * 64 + static_cast<std::int32_t>(c));
}

}  // namespace
}  // namespace shmap
