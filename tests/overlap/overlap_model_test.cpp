// The model that chooses forms of overlapped products: the winner for each size, and agreement with
// published times of collective matmuls on several GPUs.
#include "overlap/model.h"

#include <gtest/gtest.h>

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
