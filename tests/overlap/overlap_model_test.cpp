// The model that chooses forms of overlapped products: the winner for each size, and agreement with
// published times of collective matmuls on several GPUs.
#include "overlap/model.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace shmap {
namespace {

OverlapSpec spec_of(OverlapKind kind, int ranks) {
  OverlapSpec s;
  s.kind = kind;
  s.a = "mk";
  s.b = "kn";
  s.out = "mn";
  s.part = 'm';
  s.ranks = ranks;
  return s;
}

OverlapChoice gather_on(OverlapMachine machine, int ranks, std::int64_t rows, std::int64_t k,
                        std::int64_t n, DType dtype) {
  return model_overlap(machine, spec_of(OverlapKind::gather, ranks), ShapedArray({rows, k}, dtype),
                       ShapedArray({k, n}, dtype));
}
OverlapChoice scatter_on(OverlapMachine machine, int ranks, std::int64_t rows, std::int64_t k,
                         std::int64_t n, DType dtype) {
  return model_overlap(machine, spec_of(OverlapKind::scatter, ranks), ShapedArray({rows, k}, dtype),
                       ShapedArray({k, n}, dtype));
}

constexpr OverlapMachine kPeers{DeviceKind::cuda, OverlapLink::peers, 1};
constexpr OverlapMachine kStaged{DeviceKind::cuda, OverlapLink::staged, 8};

TEST(OverlapModel, CoresHideNothing) {
  for (const OverlapLink link : {OverlapLink::shared, OverlapLink::cores}) {
    const OverlapMachine cpu{DeviceKind::cpu, link, 1};
    for (const std::int64_t n : {8, 64, 512, 1024}) {
      for (const DType dtype : {f32, bf16}) {
        const OverlapChoice gather = gather_on(cpu, 8, n / 8, n, n, dtype),
                            scatter = scatter_on(cpu, 8, n, n / 8, n, dtype);
        EXPECT_LE(gather.none_us, gather.ring_us) << n;
        EXPECT_LE(gather.none_us, gather.two_rings_us) << n;
        EXPECT_LE(scatter.none_us, scatter.ring_us) << n;
      }
    }
  }
}

constexpr OverlapMachine network_of(OverlapNodes nodes = {}) {
  return {DeviceKind::cpu, OverlapLink::network, 1, nodes};
}

TEST(OverlapModel, ProductsHideANetwork) {
  for (const int ranks : {2, 4, 8}) {
    const OverlapChoice gather = gather_on(network_of(), ranks, 1024, 4096, 1024, f32);
    EXPECT_LT(gather.ring_us, 0.95 * gather.none_us) << ranks;
    EXPECT_LE(gather.ring_us, gather.two_rings_us) << ranks;
    // What is hidden is not more than the transfer or the product.
    const double product = 2. * 1024 * ranks * 4096 * 1024 / 2e5;
    EXPECT_GT(gather.ring_us, product) << ranks;
    EXPECT_GT(gather.ring_us, gather.none_us / 2) << ranks;
    const OverlapChoice scatter = scatter_on(network_of(), ranks, 1024 * ranks, 4096, 2048, f32);
    EXPECT_LT(scatter.ring_us, scatter.none_us) << ranks;
  }
}

// Copying the parts of the result costs more than a short transfer; and messages have latencies.
TEST(OverlapModel, ANetworkIsNotWorthHidingBehind) {
  for (const int ranks : {2, 8}) {
    const OverlapChoice wide = gather_on(network_of(), ranks, 1024, 128, 8192, f32);
    EXPECT_LT(wide.none_us, wide.ring_us) << ranks;
    const OverlapChoice small = gather_on(network_of(), ranks, 8, 64, 64, f32);
    EXPECT_LT(small.none_us, small.ring_us) << ranks;
  }
}

// The picture of docs/overlap.md: two processes with a link of 1 Gbit/s for both directions
// together, 197 ms and 148 ms.
TEST(OverlapModel, TheSlowLinkOfThePicture) {
  OverlapMachine machine = network_of();
  machine.network_bytes = 125. / 2;
  const OverlapChoice c = gather_on(machine, 2, 1024, 1024, 3072, f32);
  EXPECT_NEAR(c.ring_us / c.none_us, 148. / 197, 0.1);
  machine.link = OverlapLink::cores;
  const OverlapChoice one_node = gather_on(machine, 2, 1024, 1024, 3072, f32);
  EXPECT_LT(one_node.none_us, one_node.ring_us);
}

// In the plain form each process of a node receives all that comes from other nodes; a ring crosses
// between two nodes once.
TEST(OverlapModel, DevicesOfANodeShareItsNetwork) {
  const auto saved = [](OverlapNodes nodes) {
    const OverlapChoice c = gather_on(network_of(nodes), 8, 256, 2048, 2048, f32);
    return c.none_us - c.ring_us;
  };
  EXPECT_GT(saved({4, 4, 1}), saved({4, 1, 1}));
  const auto times = [](OverlapNodes nodes) {
    return gather_on(network_of(nodes), 8, 256, 4096, 512, f32);
  };
  EXPECT_GT(times({1, 1, 4}).none_us, times({1, 1, 1}).none_us);
  EXPECT_GT(times({1, 1, 4}).ring_us, times({1, 1, 1}).ring_us);
}

using Sizes = std::vector<std::int64_t>;

const detail::AxisEnv& env_of(const Sizes& sizes) {
  return *detail::AxisEnv::intern({"i", "j"}, sizes);
}

TEST(OverlapModel, AxesThatLeaveNodes) {
  // Two nodes with two processes each, which have two devices each.
  const std::vector<int> nodes = {0, 0, 0, 0, 2, 2, 2, 2}, processes = {0, 0, 1, 1, 2, 2, 3, 3};
  const auto found = [&](const Sizes& sizes, const Axes& axes) {
    return nodes_of_cliques(env_of(sizes), axes, nodes, processes);
  };
  const auto expect = [](const std::optional<OverlapNodes>& got, int ranks, int procs,
                         int cliques) {
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->ranks, ranks);
    EXPECT_EQ(got->processes, procs);
    EXPECT_EQ(got->cliques, cliques);
  };
  EXPECT_FALSE(found({2, 4}, "j").has_value());
  expect(found({2, 4}, "i"), 1, 1, 4);
  expect(found({2, 4}, axes("i", "j")), 4, 2, 1);
  expect(found({4, 2}, "i"), 2, 2, 2);
  EXPECT_FALSE(found({4, 2}, "j").has_value());
  expect(found({1, 8}, "j"), 4, 2, 1);
  // A mesh of the first devices alone; one of more devices than there are; an axis that is missing.
  EXPECT_FALSE(found({2, 2}, axes("i", "j")).has_value());
  expect(found({3, 2}, "i"), 2, 2, 2);
  EXPECT_FALSE(found({4, 4}, "i").has_value());
  EXPECT_FALSE(found({2, 4}, "k").has_value());
}

TEST(OverlapModel, OneProcessHasNoNetwork) {
  EXPECT_NE(overlap_machine(&env_of({2, 2}), "i").link, OverlapLink::network);
  EXPECT_NE(overlap_machine(nullptr, "i").link, OverlapLink::network);
}

TEST(OverlapModel, LargeProductsHideALink) {
  for (const int ranks : {2, 4, 8}) {
    const OverlapChoice gather = gather_on(kPeers, ranks, 1024, 4096, 4096, f16);
    EXPECT_LT(gather.ring_us, gather.none_us) << ranks;
    const OverlapChoice scatter = scatter_on(kPeers, ranks, 1024 * ranks, 4096, 4096, f16);
    // Sums of half types travel in f32, which does not pay with two ranks.
    EXPECT_EQ(scatter.ring_us<scatter.none_us, ranks> 2) << ranks;
    const OverlapChoice staged = gather_on(kStaged, ranks, 1024, 4096, 4096, bf16);
    EXPECT_LT(staged.ring_us, staged.none_us) << ranks;
  }
}

TEST(OverlapModel, SmallProductsHideNothing) {
  for (const int ranks : {2, 8}) {
    const OverlapChoice gather = gather_on(kPeers, ranks, 16, 256, 256, bf16);
    EXPECT_LE(gather.none_us, gather.ring_us) << ranks;
    const OverlapChoice scatter = scatter_on(kPeers, ranks, 16 * ranks, 256, 256, bf16);
    EXPECT_LE(scatter.none_us, scatter.ring_us) << ranks;
  }
}

// Behind a switch one direction fills the link.
TEST(OverlapModel, TwoRingsAreForLinksThatAreRings) {
  for (const std::int64_t rows : {16, 256, 1024, 4096}) {
    const OverlapChoice c = gather_on(kPeers, 8, rows, 4096, 4096, bf16);
    EXPECT_LE(c.ring_us, c.two_rings_us) << rows;
  }
}

// Published for 8 × H100, f16, 1024 rows a GPU, K = N = 4096, on 2, 4 and 8 GPUs: microseconds.
TEST(OverlapModel, PublishedTimes) {
  const double serial[] = {147, 290, 565}, overlapped[] = {102, 212, 436};
  int i = 0;
  for (const int ranks : {2, 4, 8}) {
    const OverlapChoice c = gather_on(kPeers, ranks, 1024, 4096, 4096, f16);
    EXPECT_NEAR(c.none_us / serial[i], 1, 0.15) << ranks;
    EXPECT_NEAR(c.ring_us / overlapped[i], 1, 0.25) << ranks;
    ++i;
  }
}

}  // namespace
}  // namespace shmap
