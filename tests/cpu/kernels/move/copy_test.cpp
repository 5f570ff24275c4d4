#include "core/cpu/kernels/move/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "core/cpu/kernels/move/copy_transpose.h"
#include "core/cpu/kernels/vector/store_around.h"

namespace shmap::cpu {
namespace {

using Rng = std::mt19937_64;
using Bytes = std::vector<std::uint8_t>;

Bytes random_bytes(std::int64_t count, Rng& rng) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = rng();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i));
  }
  return bytes;
}

void reference(const StridedCopy& c) {
  for (int d = 0; d < c.rank; ++d)
    if (c.extent[d] == 0) return;
  std::int64_t index[kMaxRank] = {};
  for (;;) {
    const char* src = static_cast<const char*>(c.src);
    char* dst = static_cast<char*>(c.dst);
    for (int d = 0; d < c.rank; ++d) {
      src += index[d] * c.src_stride[d];
      dst += index[d] * c.dst_stride[d];
    }
    std::memcpy(dst, src, static_cast<std::size_t>(c.itemsize));
    int d = c.rank - 1;
    for (; d >= 0 && ++index[d] == c.extent[d]; --d) index[d] = 0;
    if (d < 0) return;
  }
}

// Runs `copy` whole and in parts, with dst at dst_offset in a buffer of dst_bytes, and compares the
// whole buffer.
void check(StridedCopy copy, std::int64_t dst_bytes, std::int64_t dst_offset, Rng& rng,
           const std::string& what) {
  const Bytes before = random_bytes(dst_bytes, rng);
  Bytes want = before;
  copy.dst = want.data() + dst_offset;
  reference(copy);
  for (int parts : {0, 1, 2, 3, 7}) {
    Bytes got = before;
    copy.dst = got.data() + dst_offset;
    if (parts == 0) copy_strided(copy);
    for (int part = 0; part < parts; ++part) copy_strided_part(copy, part, parts);
    ASSERT_TRUE(got == want) << what << " in " << parts << " parts";
  }
}

// A random view of a random array (permuted, reversed, stepped, broadcast) into a random view of
// another.
TEST(StridedCopy, RandomViewsMatchReference) {
  Rng rng(5);
  for (int round = 0; round < 1500; ++round) {
    StridedCopy c;
    constexpr int sizes[] = {1, 2, 4, 8, 16, 3, 12, 32};
    c.itemsize = sizes[rng() % std::size(sizes)];
    c.rank = static_cast<int>(rng() % 6);
    std::int64_t budget = 3000;
    for (int d = 0; d < c.rank; ++d) {
      const bool zero = rng() % 60 == 0;
      c.extent[d] =
          zero ? 0
               : 1 + static_cast<std::int64_t>(
                         rng() % std::min<std::uint64_t>(rng() % 3 == 0 ? 40 : 6,
                                                         static_cast<std::uint64_t>(budget)));
      if (c.extent[d] > 0) budget = std::max<std::int64_t>(1, budget / c.extent[d]);
    }
    // Strides of each side: the dims in some order, each with a step, a gap and a sign.
    const auto layout = [&](std::int64_t* stride, bool may_broadcast, std::int64_t* offset) {
      std::array<int, kMaxRank> order;
      std::iota(order.begin(), order.end(), 0);
      if (rng() % 3 != 0) std::shuffle(order.begin(), order.begin() + c.rank, rng);
      std::int64_t step = c.itemsize;
      *offset = 0;
      for (int i = c.rank - 1; i >= 0; --i) {
        const int d = order[static_cast<std::size_t>(i)];
        if (may_broadcast && rng() % 5 == 0) {
          stride[d] = 0;
          continue;
        }
        if (rng() % 4 == 0) step *= 1 + static_cast<std::int64_t>(rng() % 2);
        stride[d] = step;
        step *= std::max<std::int64_t>(c.extent[d], 1);
        if (rng() % 4 == 0) step += c.itemsize;
        if (rng() % 5 == 0 && c.extent[d] > 0) {
          *offset += stride[d] * (c.extent[d] - 1);
          stride[d] = -stride[d];
        }
      }
      return step + c.itemsize;
    };
    std::int64_t src_offset, dst_offset;
    const std::int64_t src_bytes = layout(c.src_stride, true, &src_offset);
    const std::int64_t dst_bytes = layout(c.dst_stride, false, &dst_offset);
    const Bytes src = random_bytes(src_bytes, rng);
    c.src = src.data() + src_offset;
    check(c, dst_bytes, dst_offset, rng, "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
}

TEST(StridedCopy, TransposesOfEveryItemAndSize) {
  Rng rng(6);
  for (int itemsize : {1, 2, 4, 8, 16, 3}) {
    for (const auto [rows, cols] : {std::array<std::int64_t, 2>{1, 1},
                                    {4, 4},
                                    {16, 16},
                                    {64, 64},
                                    {65, 63},
                                    {3, 1000},
                                    {1000, 3},
                                    {129, 520},
                                    {1024, 3},
                                    {2048, 2},
                                    {31, 1030}}) {
      const Bytes src = random_bytes(rows * cols * itemsize, rng);
      StridedCopy c;
      c.rank = 2;
      c.itemsize = itemsize;
      c.extent[0] = rows, c.extent[1] = cols;
      row_major_strides(2, c.extent, itemsize, c.dst_stride);
      c.src_stride[0] = itemsize, c.src_stride[1] = rows * itemsize;
      c.src = src.data();
      check(c, rows * cols * itemsize, 0, rng,
            std::to_string(rows) + "x" + std::to_string(cols) + " of " + std::to_string(itemsize));
    }
  }
}

// Runs that begin a few bytes before or after their source, modulo the page size.
TEST(StridedCopy, LongRunsAtEveryDistanceWithinPages) {
  Rng rng(14);
  constexpr std::int64_t page = 4096, rows = 3;
  const Bytes src = random_bytes(5 * page, rng);
  const Bytes before = random_bytes(7 * page, rng);
  for (const std::int64_t run : {2047, 2048, 2049, 2112, 3972, 4223}) {
    for (std::int64_t distance = -34; distance <= 66; ++distance) {
      StridedCopy c;
      c.rank = 2;
      c.itemsize = 1;
      c.extent[0] = rows, c.extent[1] = run;
      c.src_stride[0] = run, c.src_stride[1] = 1;
      c.dst_stride[0] = run + 5, c.dst_stride[1] = 1;
      c.src = src.data();
      Bytes got = before, want = before;
      // Returns the address in `to` at which dst is `distance` bytes ahead of src, modulo pages, in
      // the first row.
      const auto at = [&](Bytes& to) {
        const auto ahead = reinterpret_cast<std::uintptr_t>(src.data()) -
                           reinterpret_cast<std::uintptr_t>(to.data()) +
                           static_cast<std::uintptr_t>(distance);
        return to.data() + ahead % page;
      };
      // `want` may lie elsewhere in its page: it is filled at the offset of `got`.
      c.dst = want.data() + (at(got) - got.data());
      reference(c);
      c.dst = at(got);
      copy_strided(c);
      ASSERT_TRUE(got == want) << run << " at " << distance;
    }
  }
}

// Every second, third … item of a line; nothing is read past the last one.
TEST(StridedCopy, ItemsAtASmallStepArePicked) {
  Rng rng(10);
  for (const int itemsize : {1, 2, 4, 8, 16}) {
    for (const std::int64_t n : {1, 15, 16, 17, 33, 64, 65, 130, 1000}) {
      for (const std::int64_t step : {2, 3, 4, 5}) {
        constexpr std::int64_t rows = 3;
        const std::int64_t row = n * step;
        const Bytes src = random_bytes((rows * row - step + 1) * itemsize, rng);
        StridedCopy c;
        c.rank = 2;
        c.itemsize = itemsize;
        c.extent[0] = rows, c.extent[1] = n;
        row_major_strides(2, c.extent, itemsize, c.dst_stride);
        c.src_stride[0] = row * itemsize, c.src_stride[1] = step * itemsize;
        c.src = src.data();
        check(c, rows * n * itemsize + 1, 1, rng,
              std::to_string(n) + " at step " + std::to_string(step) + " of " +
                  std::to_string(itemsize));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Channels last to first and back, with an outer dim; each item several times; lines backwards.
TEST(StridedCopy, AFewRowsAreDealtWovenAndTurned) {
  Rng rng(9);
  for (const int itemsize : {1, 2, 4, 8, 16}) {
    for (const std::int64_t n : {1, 15, 16, 17, 63, 64, 65, 130, 1000}) {
      for (const std::int64_t few : {1, 2, 3, 4, 5}) {
        for (const char* const what : {"deal", "weave", "repeat", "turn"}) {
          constexpr std::int64_t outer = 3;
          const std::int64_t count = few * n;
          const Bytes src = random_bytes((outer * count + 1) * itemsize, rng);
          StridedCopy c;
          c.rank = 3;
          c.itemsize = itemsize;
          const bool deal = what[0] == 'd', turn = what[0] == 't';
          c.extent[0] = outer, c.extent[1] = deal || turn ? few : n;
          c.extent[2] = deal || turn ? n : few;
          row_major_strides(3, c.extent, itemsize, c.dst_stride);
          c.src_stride[0] = count * itemsize;
          c.src_stride[1] = turn ? n * itemsize : itemsize;
          c.src_stride[2] = (deal ? few : turn ? -1 : what[0] == 'w' ? n : 0) * itemsize;
          c.src = src.data() + (turn ? (n - 1) * itemsize : 0) + 1;  // never aligned
          check(c, outer * count * itemsize + 1, 1, rng,
                what + std::to_string(few) + "x" + std::to_string(n) + " of " +
                    std::to_string(itemsize));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Copies past the caches and through them, with every remainder of a block, and with gaps between
// rows that must not change. Nothing is aligned.
TEST(Transpose, BlocksAndTheirEdges) {
  Rng rng(7);
  for (const std::int64_t item : {1, 2, 4, 8}) {
    for (const std::int64_t rows : {1, 3, 15, 16, 17, 64, 65, 128, 300}) {
      for (const std::int64_t cols : {1, 5, 16, 63, 64, 65, 129, 257, 1100}) {
        const std::int64_t src_row = (rows + 3) * item, dst_row = (cols + 5) * item;
        const Bytes src = random_bytes(cols * src_row + 1, rng);
        const Bytes before = random_bytes(rows * dst_row + 1, rng);
        Bytes want = before;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < cols; ++c)
            std::memcpy(&want[static_cast<std::size_t>(1 + r * dst_row + c * item)],
                        &src[static_cast<std::size_t>(1 + c * src_row + r * item)],
                        static_cast<std::size_t>(item));
        for (const auto run : {transpose, transpose_around}) {
          Bytes got = before;
          run(reinterpret_cast<char*>(got.data()) + 1, dst_row,
              reinterpret_cast<const char*>(src.data()) + 1, src_row, rows, cols,
              static_cast<int>(item));
          ASSERT_TRUE(got == want) << rows << "x" << cols << " of " << item;
        }
      }
    }
  }
}

TEST(StridedCopy, LargeTransposesStreamPastTheCaches) {
  Rng rng(7);
  for (int itemsize : {1, 2, 4, 8}) {
    // Neither extent is a multiple of the block that a step handles.
    const std::int64_t cols = 1088 / itemsize * 4, rows = store_around_bytes() / (1088 * 4) + 3;
    const std::int64_t bytes = rows * cols * itemsize;
    const Bytes src = random_bytes(bytes, rng);
    StridedCopy c;
    c.rank = 2;
    c.itemsize = itemsize;
    c.extent[0] = rows, c.extent[1] = cols;
    row_major_strides(2, c.extent, itemsize, c.dst_stride);
    c.src_stride[0] = itemsize, c.src_stride[1] = rows * itemsize;
    c.src = src.data();
    char* const dst = static_cast<char*>(std::aligned_alloc(64, static_cast<std::size_t>(bytes)));
    c.dst = dst;
    copy_strided(c);
    std::int64_t wrong = 0;
    for (std::int64_t r = 0; r < rows; r += r + 70 < rows ? 7 : 1) {
      for (std::int64_t col = 0; col < cols; ++col) {
        wrong +=
            std::memcmp(dst + (r * cols + col) * itemsize, src.data() + (col * rows + r) * itemsize,
                        static_cast<std::size_t>(itemsize)) != 0;
      }
    }
    EXPECT_EQ(wrong, 0) << itemsize;
    std::free(dst);
  }
}

TEST(StridedCopy, LargeRunsStreamPastTheCaches) {
  Rng rng(8);
  const std::int64_t bytes = (std::int64_t{9} << 20) + 77;
  const Bytes src = random_bytes(bytes, rng);
  for (std::int64_t offset : {0, 1, 63}) {
    Bytes got(static_cast<std::size_t>(bytes + 64), 7);
    copy_bytes(got.data() + offset, src.data(), bytes);
    EXPECT_EQ(0, std::memcmp(got.data() + offset, src.data(), static_cast<std::size_t>(bytes)));
    for (std::int64_t i = 0; i < offset; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], 7);
    for (std::int64_t i = offset + bytes; i < bytes + 64; ++i)
      EXPECT_EQ(got[static_cast<std::size_t>(i)], 7);
  }
  // Rows of one array into the columns of another, as concatenate does.
  StridedCopy c;
  c.rank = 2;
  c.itemsize = 4;
  c.extent[0] = store_around_bytes() / 4400 + 1, c.extent[1] = 1100;
  row_major_strides(2, c.extent, 4, c.src_stride);
  c.dst_stride[0] = 5000, c.dst_stride[1] = 4;
  const Bytes rows = random_bytes(c.extent[0] * 4400, rng);
  c.src = rows.data();
  check(c, c.extent[0] * 5000, 4, rng, "concatenate");
}

TEST(CopyParts, SmallCopiesAreNotCut) {
  StridedCopy c;
  c.rank = 1;
  c.itemsize = 4;
  c.extent[0] = 100, c.src_stride[0] = c.dst_stride[0] = 4;
  EXPECT_EQ(copy_parts(c, 8), 1);
  c.extent[0] = 10'000'000;
  EXPECT_EQ(copy_parts(c, 8), 8);
}

}  // namespace
}  // namespace shmap::cpu
