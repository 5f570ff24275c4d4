// The choice between the ways of a collective between GPUs, by its clique's size and its bytes.
#include "collectives/link_model.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace shmap {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

struct Bytes {
  std::int64_t in, out;
};
// The bytes of operand and result for a block of n bytes, by kind.
Bytes bytes_of(CollectiveKind kind, int ranks, std::int64_t n) {
  if (kind == CollectiveKind::all_gather) return {n, n * ranks};
  if (kind == CollectiveKind::reduce_scatter) return {n * ranks, n};
  return {n, n};
}
bool in_process(CollectiveKind kind, int ranks, std::int64_t n) {
  const Bytes b = bytes_of(kind, ranks, n);
  return goes_in_process(kind, ranks, b.in, b.out);
}
// The least power of two of bytes whose choice differs from that of one byte; 0: none to 16 GiB.
std::int64_t turns_at(CollectiveKind kind, int ranks) {
  const bool at_first = in_process(kind, ranks, 1);
  for (std::int64_t n = 2; n <= 16 * kGiB; n *= 2)
    if (in_process(kind, ranks, n) != at_first) return n;
  return 0;
}

constexpr std::initializer_list<CollectiveKind> kAll = {
    CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
    CollectiveKind::all_to_all, CollectiveKind::permute,    CollectiveKind::broadcast};

TEST(LinkModel, CopiesCarryPermutationsOfAnySize) {
  for (int ranks : {2, 3, 8, 64}) {
    EXPECT_TRUE(in_process(CollectiveKind::permute, ranks, 1));
    EXPECT_EQ(turns_at(CollectiveKind::permute, ranks), 0);
  }
}

TEST(LinkModel, SmallReductionsAreOneKernelAndLargeOnesARing) {
  EXPECT_TRUE(in_process(CollectiveKind::all_reduce, 8, 4));
  EXPECT_EQ(turns_at(CollectiveKind::all_reduce, 8), 256 * kKiB);
  EXPECT_TRUE(in_process(CollectiveKind::reduce_scatter, 8, 4));
  EXPECT_EQ(turns_at(CollectiveKind::reduce_scatter, 8), 4 * kMiB);
  EXPECT_FALSE(in_process(CollectiveKind::all_reduce, 8, 64 * kMiB));
}

TEST(LinkModel, ManySmallCopiesTakeLongerThanARing) {
  EXPECT_FALSE(in_process(CollectiveKind::all_gather, 8, 4));
  EXPECT_EQ(turns_at(CollectiveKind::all_gather, 8), 512 * kKiB);
  EXPECT_TRUE(in_process(CollectiveKind::all_gather, 2, 4));
  EXPECT_TRUE(in_process(CollectiveKind::all_to_all, 4, 4));
  EXPECT_FALSE(in_process(CollectiveKind::all_to_all, 8, 4));
}

TEST(LinkModel, ALargeBroadcastGoesAroundRatherThanFromOneGpu) {
  EXPECT_TRUE(in_process(CollectiveKind::broadcast, 8, 4));
  EXPECT_FALSE(in_process(CollectiveKind::broadcast, 8, 64 * kMiB));
  EXPECT_TRUE(in_process(CollectiveKind::broadcast, 2, 64 * kMiB));
}

// Both times grow with the block, and the choice changes at most once.
TEST(LinkModel, IsMonotone) {
  for (CollectiveKind kind : kAll) {
    for (int ranks = 2; ranks <= 64; ++ranks) {
      int turns = 0;
      double before[2] = {0, 0};
      bool way = in_process(kind, ranks, 1);
      for (std::int64_t n = 1; n <= 16 * kGiB; n += n / 3 + 1) {
        const Bytes b = bytes_of(kind, ranks, n);
        const double now[2] = {in_process_us(kind, ranks, b.in, b.out),
                               nccl_us(kind, ranks, b.in, b.out)};
        for (int i : {0, 1}) {
          EXPECT_GT(now[i], before[i]);
          before[i] = now[i];
        }
        turns += in_process(kind, ranks, n) != way;
        way = in_process(kind, ranks, n);
      }
      EXPECT_LE(turns, 1) << "kind " << static_cast<int>(kind) << ", ranks " << ranks;
    }
  }
}

}  // namespace
}  // namespace shmap
