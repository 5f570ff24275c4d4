// shmap-test: devices
// Sorting by one and several keys, argsort and top_k: against the standard library, on arrays split
// over a mesh, and in a body.
#include "core/ops/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/ir/trace.h"
#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/shard_map.h"

namespace shmap {
namespace {

std::vector<float> numbers(std::int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>((i * 37 + i / 11) % 101) - 50;
  return out;
}

// The source indices of the sorted elements in each line of dim `axis` of [outer, len, inner].
std::vector<std::int32_t> reference_order(const std::vector<float>& v, std::int64_t len,
                                          std::int64_t inner) {
  std::vector<std::int32_t> out(v.size());
  const auto n = static_cast<std::int64_t>(v.size());
  for (std::int64_t start = 0; start < n; start += len * inner) {
    for (std::int64_t k = 0; k < inner; ++k) {
      const auto at = [&](std::int64_t i) {
        return static_cast<std::size_t>(start + i * inner + k);
      };
      std::vector<std::int32_t> order(static_cast<std::size_t>(len));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return v[at(a)] < v[at(b)]; });
      for (std::int64_t i = 0; i < len; ++i) out[at(i)] = order[static_cast<std::size_t>(i)];
    }
  }
  return out;
}

TEST(SortOps, AlongEachDim) {
  const Shape shape{5, 60, 70};
  const auto values = numbers(shape.num_elements());
  const Array x = array(values, shape);
  const std::int64_t inner[] = {4200, 70, 1};
  for (int d = 0; d < 3; ++d) {
    SCOPED_TRACE(d);
    const std::int64_t len = shape[static_cast<std::size_t>(d)];
    const auto order = reference_order(values, len, inner[d]);
    EXPECT_EQ(argsort(x, d).to_vector<std::int32_t>(), order);
    EXPECT_EQ(argsort(x, d).dtype(), i32);
    std::vector<float> sorted(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i);
      const std::int64_t base = place / (len * inner[d]) * len * inner[d] + place % inner[d];
      sorted[i] = values[static_cast<std::size_t>(base + order[i] * inner[d])];
    }
    EXPECT_EQ(sort(x, d).to_vector<float>(), sorted);
  }
}

// Long enough that several threads sort ranges of one line.
TEST(SortOps, LongLines) {
  const Shape shape{2, 70001};
  std::vector<float> values = numbers(shape.num_elements());
  for (std::size_t i = 0; i < values.size(); i += 7) values[i] *= static_cast<float>(i);
  const auto order = reference_order(values, shape[1], 1);
  const Array x = array(values, shape);
  EXPECT_EQ(argsort(x).to_vector<std::int32_t>(), order);
  std::vector<float> sorted(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    sorted[i] = values[i / 70001 * 70001 + static_cast<std::size_t>(order[i])];
  EXPECT_EQ(sort(x).to_vector<float>(), sorted);
  // Two keys: the second decides among the many equal first ones.
  Array in[2] = {x[0] > 0.f, x[0]};
  std::vector<float> low, high;
  for (std::size_t i = 0; i < 70001; ++i) (sorted[i] > 0 ? high : low).push_back(sorted[i]);
  low.insert(low.end(), high.begin(), high.end());
  EXPECT_EQ(bind_all(sort_p, in, SortParams(0, 2), {})[1].to_vector<float>(), low);
}

TEST(SortOps, SeveralKeys) {
  // Sorts by the first operand, then by the second; the third goes along.
  Array in[3] = {array<std::int32_t>({2, 1, 2, 1, 2}, {5}), array<float>({3, 9, 1, 4, 1}, {5}),
                 array<std::int8_t>({0, 1, 2, 3, 4}, {5})};
  const std::vector<Array> out = bind_all(sort_p, in, SortParams(0, 2), {});
  EXPECT_EQ(out[0].to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 1, 2, 2, 2}));
  EXPECT_EQ(out[1].to_vector<float>(), (std::vector<float>{4, 9, 1, 1, 3}));
  EXPECT_EQ(out[2].to_vector<std::int8_t>(), (std::vector<std::int8_t>{3, 1, 2, 4, 0}));
}

TEST(SortOps, TopK) {
  const Shape shape{300, 400};
  const auto values = numbers(shape.num_elements());
  const auto [best, where] = top_k(array(values, shape), 5);
  EXPECT_EQ(best.shape(), (Shape{300, 5}));
  EXPECT_EQ(where.dtype(), i32);
  const auto got = best.to_vector<float>();
  const auto at = where.to_vector<std::int32_t>();
  for (std::size_t row = 0; row < 300; ++row) {
    std::vector<std::int32_t> order(400);
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](std::int32_t i) {
      return values[row * 400 + static_cast<std::size_t>(i)];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return value(a) > value(b); });
    for (std::size_t k = 0; k < 5; ++k) {
      ASSERT_EQ(at[row * 5 + k], order[k]) << row;
      ASSERT_EQ(got[row * 5 + k], value(order[k])) << row;
    }
  }
}

TEST(SortOps, Errors) {
  const auto text = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  const Array x = zeros({2, 3});
  EXPECT_NE(text([&] { sort(x, 2); }).find("sort: dim 2 is out of range for an array of rank 2"),
            std::string::npos);
  EXPECT_NE(text([&] { argsort(x, -3); }).find("argsort: dim -3"), std::string::npos);
  EXPECT_NE(text([&] { top_k(x, 4); }).find("top_k: k=4 of an operand of shape (2, 3)"),
            std::string::npos);
  EXPECT_NE(text([&] { top_k(x, 4); }).find("sort_ops_test.cpp:"), std::string::npos);
  EXPECT_NE(text([&] { top_k(Array(1.f), 0); }).find("rank 0"), std::string::npos);
  Array in[2] = {x, zeros({3, 2})};
  EXPECT_NE(text([&] { bind_all(sort_p, in, SortParams(0), {}); }).find("(2, 3) and (3, 2)"),
            std::string::npos);
}

TEST(SortOps, SplitOverAMesh) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = array(numbers(8 * 16), {8, 16});
  for (const PartitionSpec& spec :
       {P("i", "j"), P("j", "i"), P(none, "i"), P(axes("i", "j"), none), P()}) {
    const Array split = device_put(x, NamedSharding(mesh, spec));
    for (int d : {0, 1}) {
      EXPECT_EQ(sort(split, d).to_vector<float>(), sort(x, d).to_vector<float>());
      EXPECT_EQ(argsort(split, d).to_vector<std::int32_t>(),
                argsort(x, d).to_vector<std::int32_t>());
    }
    const auto [values, where] = top_k(split, 3);
    const auto [want, want_where] = top_k(x, 3);
    EXPECT_EQ(values.to_vector<float>(), want.to_vector<float>());
    EXPECT_EQ(where.to_vector<std::int32_t>(), want_where.to_vector<std::int32_t>());
  }
  const Array split = device_put(x, NamedSharding(mesh, P("i", "j")));
  EXPECT_EQ(sort(split, 1).sharding(), NamedSharding(mesh, P("i", none)));
}

TEST(SortOps, InABody) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  std::vector<std::string> types;
  const auto f = shard_map(
      [&](Array block) {
        const auto [best, where] = top_k(block, 2);
        types = {to_string(sort(block, 0).type()), to_string(argsort(block).type()),
                 to_string(best.type()), to_string(where.type())};
        return best;
      },
      mesh, P("i"), P("i"));
  const Array x = array(numbers(8 * 16), {8, 16});
  EXPECT_EQ(f(x).to_vector<float>(), top_k(x, 2).first.to_vector<float>());
  EXPECT_EQ(types, (std::vector<std::string>{"f32[2,16]{i}", "i32[2,16]{i}", "f32[2,2]{i}",
                                             "i32[2,2]{i}"}));
}

}  // namespace
}  // namespace shmap
