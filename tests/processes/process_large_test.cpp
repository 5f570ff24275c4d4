// Blocks of more elements and bytes than an int counts, from process to process, in pieces. It
// takes 14 GB of memory, so it runs where SHMAP_TEST_LARGE is set, and with two processes that have
// one device each: SHMAP_TEST_LARGE=1 mpirun -n 2 -x SHMAP_DEVICES=cpu:1 bin/process_large_test
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

constexpr std::int64_t kColumns = 1 << 16;

class ProcessLarge : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("SHMAP_TEST_LARGE") == nullptr) GTEST_SKIP() << "SHMAP_TEST_LARGE is not set";
    ASSERT_EQ(devices().size(), 2u);
  }
  // The element at a position of that rank's block.
  static std::uint8_t value(std::int64_t rank, std::int64_t row, std::int64_t column) {
    return static_cast<std::uint8_t>(rank * 101 + row * 7 + column * 3);
  }
  static Array block_of(const Mesh& mesh, std::int64_t rows) {
    return shard_map(
        [=](Array rank) {
          const Array row = reshape(iota(u8, rows), {rows, 1}) * array<std::uint8_t>({7}, {1, 1});
          const Array column =
              reshape(iota(u8, kColumns), {1, kColumns}) * array<std::uint8_t>({3}, {1, 1});
          return row + column + reshape(rank, {1, 1}) * array<std::uint8_t>({101}, {1, 1});
        },
        mesh, {P("i")}, P("i"))(array<std::uint8_t>({0, 1}, {2}));
  }
  // Compares the rows from `first` on of this process's block with those of the block of `rank`.
  static void expect_rows(const Array& mine, std::int64_t first, std::int64_t rows,
                          std::int64_t rank) {
    for (std::int64_t row = 0; row < rows; row += 4096) {
      const std::int64_t end = std::min(rows, row + 4096);
      const std::vector<std::uint8_t> got =
          slice_in_dim(mine, first + row, first + end).to_vector<std::uint8_t>();
      std::size_t at = 0, wrong = 0;
      for (std::int64_t r = row; r < end; ++r)
        for (std::int64_t c = 0; c < kColumns; ++c) wrong += got[at++] != value(rank, r, c);
      ASSERT_EQ(wrong, 0u) << "rows " << row << " to " << end;
    }
  }
};

TEST_F(ProcessLarge, AMessageOfMoreThanTwoGigabytes) {
  constexpr std::int64_t kRows = (1 << 15) + 3;  // 2^31 + 196608 elements of a byte each
  const Mesh mesh = make_mesh({2}, "i");
  const Array x = block_of(mesh, kRows);
  const Array y = shard_map(
      [](Array b) {
        return ppermute(b, "i", {{0, 1}, {1, 0}});
      },
      mesh, {P("i")}, P("i"))(x);
  const Array mine = y.addressable_shards().at(0).data;
  ASSERT_GT(mine.shape().num_elements(), std::int64_t{1} << 31);
  expect_rows(mine, 0, kRows, 1 - process_index());
}

TEST_F(ProcessLarge, AGatherOfMoreThanTwoGigabytes) {
  constexpr std::int64_t kRows = (1 << 14) + 3;  // of each, and twice as many of both
  const Mesh mesh = make_mesh({2}, "i");
  const Array y = shard_map([](Array b) { return all_gather(b, "i", {.tiled = true}); }, mesh,
                            {P("i")}, P("i"))(block_of(mesh, kRows));
  const Array mine = y.addressable_shards().at(0).data;
  ASSERT_GT(mine.shape().num_elements(), std::int64_t{1} << 31);
  for (std::int64_t rank = 0; rank < 2; ++rank) expect_rows(mine, rank * kRows, kRows, rank);
}

}  // namespace
}  // namespace shmap
