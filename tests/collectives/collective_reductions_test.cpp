// shmap-test: devices
// Sums of floats: the bits of one balanced tree over the ranks in mesh order, for every dtype, size
// and number of ranks. Between distinct GPUs NCCL adds in its own order; sums there must be as near
// as that allows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <type_traits>

#include "core/device/runtime.h"
#include "tests/collectives/blocks.h"

namespace shmap::test {
namespace {

// Ranks past the last power of two fold into the first ones; then neighbours combine at distance 1,
// 2, 4, …
template <class T, class Op>
T tree(std::vector<T> v, Op op) {
  std::size_t p = 1;
  while (2 * p <= v.size()) p *= 2;
  for (std::size_t r = p; r < v.size(); ++r) v[r - p] = op(v[r - p], v[r]);
  for (std::size_t d = 1; d < p; d *= 2)
    for (std::size_t r = 0; r < p; r += 2 * d) v[r] = op(v[r], v[r + d]);
  return v[0];
}
template <class T>
T tree_sum(const std::vector<T>& v) {
  return tree(v, [](T a, T b) { return static_cast<T>(a + b); });
}

bool adds_by_tree() {
  if (runtime().backend().kind() != DeviceKind::cuda) return true;
  const char* set = std::getenv("SHMAP_COMMUNICATOR");
  const std::string asked = set == nullptr ? "" : set;
  if (asked == "nccl")
    return false;  // also between ranks on one GPU, where NCCL lets them share it
  return asked == "in_process" || runtime().device_string().find('x') != std::string::npos;
}

// Compares `got` with the tree's sum of ranks: the same bits, or near it if another order is
// allowed. epsilon: of the type to which sums are rounded.
template <class T>
void expect_sum(T got, T wanted, const std::vector<T>& ranks, double epsilon,
                const std::string& where) {
  if (adds_by_tree()) {
    EXPECT_EQ(got, wanted) << where;
    return;
  }
  double magnitude = 0;
  for (T x : ranks) magnitude += std::abs(static_cast<double>(x));
  EXPECT_NEAR(got, wanted, magnitude * epsilon * static_cast<double>(ranks.size())) << where;
}

template <class T>
std::vector<T> random_values(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<T>(std::uniform_real_distribution<double>(-1000, 1000)(random)));
  return out;
}

// x has n elements a device, in order of devices.
template <class T>
void expect_tree_sums(const Mesh& mesh, const Axes& over, std::int64_t n) {
  const std::int64_t devices = mesh.size();
  if (!has_device_of(mesh)) return;
  const std::vector<T> values = random_values<T>(devices * n, static_cast<unsigned>(n + devices));
  const P split{Axes(mesh.axis_names())};
  const HostMesh host{[&] {
    const Shape sizes = mesh.axis_sizes();
    return Extents(sizes.begin(), sizes.end());
  }()};
  std::vector<int> axes_in_mesh_order;
  for (int a = 0; a < static_cast<int>(mesh.axis_names().size()); ++a)
    for (const std::string& name : over)
      if (name == mesh.axis_names()[static_cast<std::size_t>(a)]) axes_in_mesh_order.push_back(a);
  shard_map(
      [&](Array x) {
        const Array sum = psum(x, over);
        for (std::uint32_t d : own_positions(sum)) {
          const std::vector<T> got = block_values<T>(sum, d);
          const auto group = host.group(d, axes_in_mesh_order);
          for (std::int64_t k = 0; k < n; k += std::max<std::int64_t>(1, n / 97)) {
            std::vector<T> ranks;
            for (std::int64_t q : group)
              ranks.push_back(values[static_cast<std::size_t>(q * n + k)]);
            expect_sum(got[static_cast<std::size_t>(k)], tree_sum(ranks), ranks,
                       std::numeric_limits<T>::epsilon(),
                       to_string(mesh) + " over " + to_string(over) + ", device " +
                           std::to_string(d) + " [" + std::to_string(k) + "] of " +
                           std::to_string(n));
          }
        }
        return x;
      },
      mesh, split, split)(array<T>(values, {devices * n}));
}

TEST(CollectiveReductions, TheBitsOfOneTree) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (std::int64_t n : {1, 3, 64, 1000})
      expect_tree_sums<float>(mesh_in_all_processes({ranks}, "i"), "i", n);
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  for (const Axes& over : {axes("i"), axes("j"), axes("i", "j"), axes("j", "i")}) {
    expect_tree_sums<float>(mesh, over, 257);
    expect_tree_sums<double>(mesh, over, 257);
  }
}

// Large blocks are combined in parts, by several workers.
TEST(CollectiveReductions, LargeBlocksHaveTheSameBits) {
  expect_tree_sums<float>(make_mesh({8}, "i"), "i", 300'001);
  expect_tree_sums<double>(make_mesh({6}, "i"), "i", 100'003);
}

// f16 and bf16 go through the tree in f32 and are rounded once.
template <class H>
void expect_half_sums() {
  const std::vector<float> wide = random_values<float>(8 * 33, 5);
  std::vector<H> values;
  for (float v : wide) values.push_back(H(v));
  shard_map(
      [&](Array x) {
        const Array sum = psum(x, "i");
        const std::vector<H> got = block_values<H>(sum, own_positions(sum).back());
        for (std::size_t k = 0; k < 33; ++k) {
          std::vector<float> ranks;
          for (std::size_t r = 0; r < 8; ++r)
            ranks.push_back(static_cast<float>(values[r * 33 + k]));
          expect_sum(static_cast<float>(got[k]), static_cast<float>(H(tree_sum(ranks))), ranks,
                     std::is_same_v<H, float16> ? 0x1p-10 : 0x1p-7, "[" + std::to_string(k) + "]");
        }
        return x;
      },
      make_mesh({8}, "i"), P("i"), P("i"))(array<H>(values, {8 * 33}));
}
TEST(CollectiveReductions, HalfTypesRoundOnce) {
  expect_half_sums<float16>();
  expect_half_sums<bfloat16>();
}

TEST(CollectiveReductions, ScattersAreSlicesOfTheSum) {
  const Mesh mesh = make_mesh({8}, "i");
  // Long pieces, short pieces and pieces of a single element, along either dim.
  for (const Shape& block :
       {Shape{8, 1000}, Shape{40, 3}, Shape{3, 8}, Shape{700, 16}, Shape{2, 8 * 700}}) {
    for (int dim : {0, 1}) {
      if (block[static_cast<std::size_t>(dim)] % 8 != 0) continue;
      const std::int64_t n = block[0] * block[1];
      const Array x = array<float>(random_values<float>(8 * n, 9), {8 * block[0], block[1]});
      shard_map(
          [&](Array b) {
            const Array sum = psum(b, "i");
            const Array want = pscatter(sum, "i", {.scatter_dimension = dim, .tiled = true});
            const Array got = psum_scatter(b, "i", {.scatter_dimension = dim, .tiled = true});
            for (std::uint32_t d : own_positions(got)) {
              const auto ours = block_values<float>(got, d), theirs = block_values<float>(want, d);
              if (adds_by_tree()) {
                EXPECT_EQ(ours, theirs) << to_string(block) << " along " << dim;
                continue;
              }
              EXPECT_EQ(ours.size(), theirs.size());
              // Eight numbers below 1000 in two orders.
              for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 0.01);
            }
            return b;
          },
          mesh, P("i"), P("i"))(x);
    }
  }
}

TEST(CollectiveReductions, EveryDtype) {
  const Mesh mesh = mesh_in_all_processes({4}, "i");
  const auto body = [](Array x) {
    EXPECT_EQ(astype(psum(x, "i"), f64).to_vector<double>(), std::vector<double>({12, 16}))
        << x.dtype();
    EXPECT_EQ(astype(pmax(x, "i"), f64).to_vector<double>(), std::vector<double>({6, 7}));
    EXPECT_EQ(astype(pmin(x, "i"), f64).to_vector<double>(), std::vector<double>({0, 1}));
    EXPECT_EQ(astype(pmean(x, "i"), f64).to_vector<double>(), std::vector<double>({3, 4}));
    return x;
  };
  for (DType t : {i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64})
    shard_map(body, mesh, P("i"), P("i"))(astype(arange(8), t));
}

TEST(CollectiveReductions, IntegersWrap) {
  const auto body = [](Array x) {
    EXPECT_EQ(psum(x, "i").item<std::int8_t>(), static_cast<std::int8_t>(4 * 100));
    return x;
  };
  shard_map(body, mesh_in_all_processes({4}, "i"), P("i"), P("i"))(full({4}, 100, i8));
}

TEST(CollectiveReductions, BoolsAreCounted) {
  const auto body = [](Array x) {
    EXPECT_EQ(psum(x > 1, "i").item<std::int32_t>(), 2);
    EXPECT_TRUE(pmax(x > 2, "i").item<bool>());
    EXPECT_FALSE(pmin(x > 2, "i").item<bool>());
    return x;
  };
  shard_map(body, mesh_in_all_processes({4}, "i"), P("i"), P("i"))(arange(4));
}

TEST(CollectiveReductions, NaNsAndInfinities) {
  const Mesh mesh = mesh_in_all_processes({2}, "i");
  if (!has_device_of(mesh)) return;
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const auto body = [&](Array x) {
    const std::vector<float> sum = psum(x, "i").to_vector<float>(),
                             most = pmax(x, "i").to_vector<float>(),
                             least = pmin(x, "i").to_vector<float>();
    EXPECT_TRUE(std::isnan(sum[0]) && std::isnan(most[0]) && std::isnan(least[0]));
    EXPECT_EQ(sum[1], inf);
    EXPECT_EQ(most[1], inf);
    EXPECT_EQ(least[1], 1.f);
    return x;
  };
  shard_map(body, mesh, P("i"), P("i"))(array<float>({nan, 1, 5, inf}, {4}));
}

}  // namespace
}  // namespace shmap::test
