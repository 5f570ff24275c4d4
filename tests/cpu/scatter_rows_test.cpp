// Scatters of long rows, which kernels of two operands combine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "core/cpu/kernels/scatter.h"
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

TEST(Scatter, LongRowsOfFloats) {
  for (const auto op : {ScatterKind::add, ScatterKind::mul, ScatterKind::min, ScatterKind::max}) {
    check_long_rows<float>(op);
    check_long_rows<double>(op);
    check_long_rows<bfloat16>(op);
    check_long_rows<float16>(op);
  }
}

}  // namespace
}  // namespace shmap::cpu
