// Scatters of long rows, which kernels of two operands combine, and of many elements to few.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/cpu/kernels/indexing/kept_rows.h"
#include "core/cpu/kernels/indexing/scatter.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

using Rng = std::mt19937_64;
using std::int64_t;

// The results have the bits of one element at a time: NaNs,
// infinities and zeros of both signs too, in all parts of a row.
template <class T>
void check_long_rows(ScatterKind op) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr int64_t kRows = 7, kUpdates = 60;
  Rng rng(static_cast<std::uint64_t>(op) + 5);
  const auto value = [&] {
    constexpr Wide kSpecial[] = {0, static_cast<Wide>(-0.0), static_cast<Wide>(NAN),
                                 static_cast<Wide>(INFINITY), static_cast<Wide>(-INFINITY)};
    if (rng() % 9 == 0) return T(kSpecial[rng() % 5]);
    return T((static_cast<Wide>(rng() >> 40) / static_cast<Wide>(1 << 23) - 1) * 3);
  };
  const auto combined = [op](T a, T b) {
    const Wide x = static_cast<Wide>(a), y = static_cast<Wide>(b);
    // Of zeros -0 is the smaller.
    if (x == 0 && y == 0 && (op == ScatterKind::min || op == ScatterKind::max))
      return T(std::signbit(x) == (op == ScatterKind::min) ? x : y);
    return T(op == ScatterKind::add   ? x + y
             : op == ScatterKind::mul ? x * y
             : op == ScatterKind::min ? (x != x || x < y ? x : y)
                                      : (x != x || x > y ? x : y));
  };
  const auto same = [](const T& a, const T& b) {
    return (a != a && b != b) || std::memcmp(&a, &b, sizeof(T)) == 0;
  };
  for (const int64_t columns : {31, 32, 33, 101, 600}) {
    std::vector<T> operand(static_cast<std::size_t>(kRows * columns));
    std::vector<T> updates(static_cast<std::size_t>(kUpdates * columns));
    for (T& x : operand) x = value();
    for (T& x : updates) x = value();
    std::vector<std::int32_t> indices;
    std::vector<T> want = operand;
    for (int64_t k = 0; k < kUpdates; ++k) {
      const int64_t row = k * 5 % (kRows + 2) - 1;
      indices.push_back(static_cast<std::int32_t>(row));
      if (row < 0 || row >= kRows) continue;
      for (int64_t c = 0; c < columns; ++c) {
        T& to = want[static_cast<std::size_t>(row * columns + c)];
        to = combined(to, updates[static_cast<std::size_t>(k * columns + c)]);
      }
    }
    Scatter s;
    s.op = op;
    s.dtype = dtype_of<T>;
    s.dims.offset_dims.push_back(1);
    s.dims.collapsed_slice_dims.push_back(0);
    s.dims.start_index_map.push_back(0);
    s.operand_shape = {kRows, columns}, s.indices_shape = {kUpdates, 1};
    s.slices_shape = {kUpdates, columns};
    s.mode = IndexMode::fill_or_drop;
    s.indices = indices.data(), s.updates = updates.data();
    for (const int parts : {1, 2, 3}) {
      std::vector<T> got = operand;
      s.operand = got.data();
      for (int part = 0; part < parts; ++part) scatter_part(s, part, parts);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin(), same))
          << short_name(s.dtype) << " " << static_cast<int>(op) << " " << columns;
    }
  }
}

// Every pattern of indices inside and outside the range in a vector of eight lanes, followed by
// more indices.
TEST(KeptRows, EveryPatternOfAVector) {
  constexpr std::int64_t count = 19;
  constexpr std::int32_t first = 100, last = 120;
  for (std::uint32_t pattern = 0; pattern < 1u << 16; pattern += pattern < 256 ? 1 : 251) {
    std::int32_t indices[count];
    std::vector<std::int32_t> want_rows, want_at;
    for (std::int32_t k = 0; k < count; ++k) {
      const bool inside = pattern >> k % 16 & 1;
      indices[k] = inside ? first + k : k % 2 == 0 ? last + k : first - 1 - k;
      if (!inside) continue;
      want_rows.push_back(indices[k]);
      want_at.push_back(k);
    }
    std::int32_t rows[count + kKeptRoom], at[count + kKeptRoom];
    const std::int64_t kept =
        keep_rows_kernel()(indices, count, 0, false, 1000, first, last, rows, at);
    ASSERT_EQ(std::vector<std::int32_t>(rows, rows + kept), want_rows) << pattern;
    ASSERT_EQ(std::vector<std::int32_t>(at, at + kept), want_at) << pattern;
  }
}

TEST(Scatter, LongRowsOfFloats) {
  for (const auto op : {ScatterKind::add, ScatterKind::mul, ScatterKind::min, ScatterKind::max}) {
    check_long_rows<float>(op);
    check_long_rows<double>(op);
    check_long_rows<bfloat16>(op);
    check_long_rows<float16>(op);
  }
}

// Many elements are added to few: sums of blocks of updates, one after another, however the blocks
// are divided. Integers are exact, and an element without updates keeps its bits.
template <class T>
void check_blocks_of_updates(int64_t size, int64_t updates, IndexMode mode) {
  SCOPED_TRACE(std::string(short_name(dtype_of<T>)) + " " + std::to_string(size) + " " +
               std::to_string(updates));
  Rng rng(static_cast<std::uint64_t>(size + updates));
  const auto value = [&] {
    const auto whole = static_cast<T>(rng() % 2000);
    return std::is_unsigned_v<T> ? whole : static_cast<T>((whole - T{1000}) * T(1.25));
  };
  std::vector<T> operand(static_cast<std::size_t>(size)), values;
  for (T& x : operand) x = value();
  operand[0] = static_cast<T>(-0.0);
  std::vector<std::int32_t> indices;
  for (int64_t k = 0; k < updates; ++k) {
    values.push_back(value());
    // Indices go from -size to size: some are out of bounds, none is 0.
    const auto index =
        static_cast<int64_t>(rng() % static_cast<std::uint64_t>(2 * size + 1)) - size;
    indices.push_back(static_cast<std::int32_t>(index == 0 || index == -size ? size - 1 : index));
  }
  Scatter s;
  s.op = ScatterKind::add;
  s.dtype = dtype_of<T>;
  s.dims.collapsed_slice_dims.push_back(0);
  s.dims.start_index_map.push_back(0);
  s.operand_shape = {size}, s.indices_shape = {updates, 1}, s.slices_shape = {updates};
  s.mode = mode;
  s.from_end = true;
  s.indices = indices.data(), s.updates = values.data();
  const int64_t blocks = scatter_block_count(s);
  ASSERT_GT(blocks, 1);
  std::vector<T> want = operand;
  for (int64_t b = 0; b < blocks; ++b) {
    std::vector<T> sums(operand.size(), static_cast<T>(-0.0));
    std::vector<T>& to = b == 0 ? want : sums;
    for (int64_t k = updates * b / blocks; k < updates * (b + 1) / blocks; ++k) {
      int64_t i = indices[static_cast<std::size_t>(k)];
      i += i < 0 ? size : 0;
      if (mode == IndexMode::clip) i = std::min(i, size - 1);
      if (i < size) to[static_cast<std::size_t>(i)] += values[static_cast<std::size_t>(k)];
    }
    for (std::size_t i = 0; b > 0 && i < want.size(); ++i) want[i] += sums[i];
  }
  const auto same = [&](const std::vector<T>& got) {
    return std::memcmp(got.data(), want.data(), got.size() * sizeof(T)) == 0;
  };
  EXPECT_EQ(std::signbit(static_cast<double>(want[0])),
            std::signbit(static_cast<double>(operand[0])));
  std::vector<T> got = operand;
  s.operand = got.data();
  scatter(s);
  EXPECT_TRUE(same(got));
  for (const int64_t parts : {2, 3}) {
    std::vector<T> sums(static_cast<std::size_t>(blocks * size));
    got = operand;
    for (int64_t part = parts - 1; part >= 0; --part)
      scatter_to_sums(s, operand.data(), blocks * part / parts, blocks * (part + 1) / parts,
                      sums.data());
    EXPECT_TRUE(std::memcmp(got.data(), operand.data(), got.size() * sizeof(T)) == 0);
    add_scatter_sums(s, sums.data());
    EXPECT_TRUE(same(got)) << parts;
  }
}

TEST(Scatter, ManyElementsAddedToFew) {
  for (const IndexMode mode : {IndexMode::clip, IndexMode::fill_or_drop}) {
    for (const int64_t size : {2, 77, 1000}) {
      check_blocks_of_updates<float>(size, 40001, mode);
      check_blocks_of_updates<double>(size, 70000, mode);
      check_blocks_of_updates<std::int32_t>(size, 33333, mode);
      check_blocks_of_updates<std::uint64_t>(size, 50003, mode);
    }
  }
}

TEST(Scatter, FewUpdatesOfAnElementAreAddedOneByOne) {
  Scatter s;
  s.op = ScatterKind::add;
  s.dtype = f32;
  s.dims.collapsed_slice_dims.push_back(0);
  s.dims.start_index_map.push_back(0);
  s.operand_shape = {1000}, s.indices_shape = {31999, 1}, s.slices_shape = {31999};
  EXPECT_EQ(scatter_block_count(s), 1);
  s.indices_shape = {32000, 1}, s.slices_shape = {32000};
  EXPECT_EQ(scatter_block_count(s), 2);
  s.dtype = bf16;  // rounded after every addition
  EXPECT_EQ(scatter_block_count(s), 1);
}

}  // namespace
}  // namespace shmap::cpu
