#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/cpu/kernels/indexing/gather.h"
#include "core/cpu/kernels/indexing/scatter.h"
#include "shmap/error.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

using Rng = std::mt19937_64;
using std::int64_t;

bool contains(const IntList& list, int64_t v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

// The index of element `flat` of a row-major array.
std::vector<int64_t> unravel(int64_t flat, const Shape& shape) {
  std::vector<int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

int64_t ravel(const std::vector<int64_t>& index, const Shape& shape) {
  int64_t flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

// A gather of random dimension numbers, and all that its arrays need.
struct Problem {
  Shape operand, indices, slice_sizes, out;
  SliceDims dims;
  IndexMode mode;
  bool from_end = false;       // negative indices count from the end
  std::vector<int64_t> index;  // values, some of them out of bounds
};

Problem random_problem(Rng& rng) {
  Problem p;
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(rng() % static_cast<std::uint64_t>(n));
  };
  const int rank = 1 + static_cast<int>(below(4));
  const int batch_rank = static_cast<int>(below(3));
  for (int d = 0; d < batch_rank; ++d) p.indices.push_back(1 + below(4));
  for (int d = 0; d < rank; ++d) p.operand.push_back(1 + below(5));
  // There is at most one batching dim.
  if (batch_rank > 0 && rank > 1 && below(3) == 0) {
    const int64_t d = below(rank), b = below(batch_rank);
    p.operand[static_cast<std::size_t>(d)] = p.indices[static_cast<std::size_t>(b)];
    p.dims.operand_batching_dims.push_back(d);
    p.dims.indices_batching_dims.push_back(b);
  }
  std::vector<int64_t> indexed;
  for (int d = 0; d < rank; ++d) {
    const bool batching = contains(p.dims.operand_batching_dims, d);
    if (!batching && below(2) == 0) indexed.push_back(d);
    const bool collapsed = !batching && below(3) == 0;
    if (collapsed) p.dims.collapsed_slice_dims.push_back(d);
    p.slice_sizes.push_back(
        batching || collapsed ? 1 : 1 + below(p.operand[static_cast<std::size_t>(d)]));
  }
  std::shuffle(indexed.begin(), indexed.end(), rng);
  for (int64_t d : indexed) p.dims.start_index_map.push_back(d);
  p.indices.push_back(static_cast<int64_t>(indexed.size()));
  const int window_rank = rank - static_cast<int>(p.dims.collapsed_slice_dims.size()) -
                          static_cast<int>(p.dims.operand_batching_dims.size());
  std::vector<int64_t> positions(static_cast<std::size_t>(window_rank + batch_rank));
  std::iota(positions.begin(), positions.end(), 0);
  if (below(2) == 0)
    std::shuffle(positions.begin(), positions.end(), rng);
  else
    std::rotate(positions.begin(), positions.begin() + batch_rank, positions.end());
  positions.resize(static_cast<std::size_t>(window_rank));
  std::sort(positions.begin(), positions.end());
  for (int64_t d : positions) p.dims.offset_dims.push_back(d);
  p.mode = below(2) == 0 ? IndexMode::clip : IndexMode::fill_or_drop;
  p.from_end = below(2) == 0;
  const int64_t count = p.indices.num_elements();
  for (int64_t i = 0; i < count; ++i) {
    const auto d = static_cast<std::size_t>(indexed[static_cast<std::size_t>(i) % indexed.size()]);
    int64_t index = below(p.operand[d] + 4) - 2;
    if (p.from_end && below(2) == 0) index -= p.operand[d];
    p.index.push_back(index);
  }
  Gather g;
  g.dims = p.dims, g.indices_shape = p.indices, g.slice_sizes = p.slice_sizes;
  p.out = gather_shape(g);
  return p;
}

// The operand index that output index `out` reads; false where its slice is out of bounds.
bool source(const Problem& p, const std::vector<int64_t>& out, std::vector<int64_t>* from) {
  std::vector<int64_t> batch, offset;
  for (std::size_t d = 0; d < out.size(); ++d)
    (contains(p.dims.offset_dims, static_cast<int64_t>(d)) ? offset : batch).push_back(out[d]);
  from->assign(p.operand.size(), 0);
  bool inside = true;
  for (std::size_t k = 0; k < p.dims.start_index_map.size(); ++k) {
    auto at = batch;
    at.push_back(static_cast<int64_t>(k));
    int64_t start = p.index[static_cast<std::size_t>(ravel(at, p.indices))];
    const auto d = static_cast<std::size_t>(p.dims.start_index_map[k]);
    const int64_t last = p.operand[d] - p.slice_sizes[d];
    if (p.from_end && start < 0) start += p.operand[d];
    if (p.mode == IndexMode::clip) start = std::clamp<int64_t>(start, 0, last);
    inside &= start >= 0 && start <= last;
    (*from)[d] = start;
  }
  for (std::size_t i = 0; i < p.dims.operand_batching_dims.size(); ++i) {
    (*from)[static_cast<std::size_t>(p.dims.operand_batching_dims[i])] =
        batch[static_cast<std::size_t>(p.dims.indices_batching_dims[i])];
  }
  std::size_t next = 0;
  for (std::size_t d = 0; d < p.operand.size(); ++d) {
    if (contains(p.dims.collapsed_slice_dims, static_cast<int64_t>(d)) ||
        contains(p.dims.operand_batching_dims, static_cast<int64_t>(d)))
      continue;
    (*from)[d] += offset[next++];
  }
  return inside;
}

template <class T>
std::vector<T> converted(const std::vector<int64_t>& v) {
  return std::vector<T>(v.begin(), v.end());
}

template <class T, class Index>
void check_gather(const Problem& p, Rng& rng) {
  std::vector<T> operand(static_cast<std::size_t>(p.operand.num_elements()));
  for (T& v : operand) v = static_cast<T>(rng());
  const auto count = static_cast<std::size_t>(p.out.num_elements());
  std::vector<T> want(count), got(count);
  const T fill = static_cast<T>(77);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<int64_t> from;
    const bool inside = source(p, unravel(static_cast<int64_t>(i), p.out), &from);
    want[i] = inside ? operand[static_cast<std::size_t>(ravel(from, p.operand))] : fill;
  }
  const std::vector<Index> indices = converted<Index>(p.index);
  Gather g;
  g.dims = p.dims, g.mode = p.mode, g.from_end = p.from_end;
  g.operand_shape = p.operand, g.indices_shape = p.indices, g.slice_sizes = p.slice_sizes;
  g.index_dtype = dtype_of<Index>;
  g.itemsize = sizeof(T);
  g.operand = operand.data(), g.indices = indices.data(), g.fill = &fill, g.out = got.data();
  gather(g);
  ASSERT_EQ(got, want);
  std::fill(got.begin(), got.end(), T{});
  for (int part = 3; part >= 0; --part) gather_part(g, part, 4);
  ASSERT_EQ(got, want);
}

TEST(Gather, RandomDimensionNumbersMatchReference) {
  Rng rng(2);
  for (int round = 0; round < 1200; ++round) {
    SCOPED_TRACE(round);
    const Problem p = random_problem(rng);
    check_gather<std::uint32_t, std::int32_t>(p, rng);
    check_gather<std::uint8_t, std::int64_t>(p, rng);
    check_gather<std::uint64_t, std::int8_t>(p, rng);
    if (HasFatalFailure()) return;
  }
}

TEST(Gather, RowsOfAMatrix) {
  constexpr int64_t rows = 50, cols = 33;
  std::vector<float> operand(rows * cols);
  std::iota(operand.begin(), operand.end(), 0.f);
  const std::vector<std::int32_t> indices = {3, 49, 0, 50, -1, 7, 1000000};
  const auto take = [&](IndexMode mode) {
    std::vector<float> out(indices.size() * cols);
    const float fill = NAN;
    Gather g;
    g.dims.offset_dims.push_back(1);
    g.dims.collapsed_slice_dims.push_back(0);
    g.dims.start_index_map.push_back(0);
    g.operand_shape = {rows, cols}, g.indices_shape = {indices.size(), 1};
    g.slice_sizes = {1, cols};
    g.mode = mode;
    g.itemsize = 4;
    g.operand = operand.data(), g.indices = indices.data(), g.fill = &fill, g.out = out.data();
    EXPECT_EQ(gather_shape(g), Shape({indices.size(), cols}));
    gather(g);
    return out;
  };
  const auto clipped = take(IndexMode::clip), filled = take(IndexMode::fill_or_drop);
  constexpr std::array<int, 7> from = {3, 49, 0, 49, 0, 7, 49};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const bool inside = indices[i] >= 0 && indices[i] < rows;
    for (std::size_t c = 0; c < cols; ++c) {
      const float row_value = static_cast<float>(from[i]) * cols + static_cast<float>(c);
      EXPECT_EQ(clipped[i * cols + c], row_value);
      if (inside)
        EXPECT_EQ(filled[i * cols + c], row_value);
      else
        EXPECT_TRUE(std::isnan(filled[i * cols + c]));
    }
  }
}

// Gathers along a dim with others before and after it, with more indices than are looked up at a
// time.
TEST(Gather, ManyPlacesOfAMiddleDim) {
  constexpr int64_t extent = 700, places = 1300;
  // With three lines parts divide the slices, with 25 they divide the lines.
  for (const auto& [outer, run] : std::vector<std::pair<int64_t, int64_t>>{
           {3, 1}, {3, 2}, {3, 3}, {3, 4}, {3, 16}, {3, 37}, {25, 1}, {25, 3}, {25, 48}}) {
    for (const IndexMode mode : {IndexMode::clip, IndexMode::fill_or_drop}) {
      std::vector<float> operand(static_cast<std::size_t>(outer * extent * run));
      std::iota(operand.begin(), operand.end(), 0.f);
      std::vector<std::int32_t> indices;
      for (int64_t k = 0; k < places; ++k)
        indices.push_back(static_cast<std::int32_t>(k * 37 % (extent + 20) - 10));
      std::vector<float> got(static_cast<std::size_t>(outer * places * run)), want;
      const float fill = -1.f;
      for (int64_t o = 0; o < outer; ++o) {
        for (const int64_t i : indices) {
          const bool inside = mode == IndexMode::clip || (i >= 0 && i < extent);
          const int64_t row = o * extent + std::clamp<int64_t>(i, 0, extent - 1);
          for (int64_t c = 0; c < run; ++c)
            want.push_back(inside ? operand[static_cast<std::size_t>(row * run + c)] : fill);
        }
      }
      Gather g;
      for (const int64_t d : {0, 2}) g.dims.offset_dims.push_back(d);
      g.dims.collapsed_slice_dims.push_back(1);
      g.dims.start_index_map.push_back(1);
      g.operand_shape = {outer, extent, run}, g.indices_shape = {places, 1};
      g.slice_sizes = {outer, 1, run};
      g.mode = mode;
      g.itemsize = 4;
      g.operand = operand.data(), g.indices = indices.data(), g.fill = &fill, g.out = got.data();
      ASSERT_EQ(gather_shape(g), Shape({outer, places, run}));
      gather(g);
      EXPECT_EQ(got, want) << run;
      std::fill(got.begin(), got.end(), 0.f);
      for (int part = 2; part >= 0; --part) gather_part(g, part, 3);
      EXPECT_EQ(got, want) << run;
    }
  }
}

// One element of each row, as in take_along_axis, and one element for each pair of indices. There
// are more rows, and more elements per row, than are looked up at a time.
TEST(Gather, ElementsOfEachRowAndOfPairsOfIndices) {
  for (const auto& [rows, extent, each] :
       std::vector<std::array<int64_t, 3>>{{1300, 7, 1}, {3, 700, 1300}, {5, 1, 3}, {2, 9, 0}}) {
    std::vector<float> operand(static_cast<std::size_t>(rows * extent));
    std::iota(operand.begin(), operand.end(), 0.f);
    for (const IndexMode mode : {IndexMode::clip, IndexMode::fill_or_drop}) {
      std::vector<std::int32_t> along, pairs;
      std::vector<float> want;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t k = 0; k < each; ++k) {
          const int64_t i = (r * 31 + k * 37) % (extent + 4) - 2;
          const bool inside = mode == IndexMode::clip || (i >= 0 && i < extent);
          const int64_t at = r * extent + std::clamp<int64_t>(i, 0, extent - 1);
          want.push_back(inside ? operand[static_cast<std::size_t>(at)] : -1.f);
          along.push_back(static_cast<std::int32_t>(i));
          pairs.push_back(static_cast<std::int32_t>(r));
          pairs.push_back(static_cast<std::int32_t>(i));
        }
      }
      const float fill = -1.f;
      for (const bool paired : {false, true}) {
        std::vector<float> got(want.size(), 7.f);
        Gather g;
        for (const int64_t d : {0, 1}) {
          if (paired || d == 1) {
            g.dims.collapsed_slice_dims.push_back(d);
            g.dims.start_index_map.push_back(d);
          } else {
            g.dims.operand_batching_dims.push_back(d);
            g.dims.indices_batching_dims.push_back(d);
          }
        }
        g.operand_shape = {rows, extent}, g.indices_shape = {rows, each, paired ? 2 : 1};
        g.slice_sizes = {1, 1};
        g.mode = mode;
        g.itemsize = 4;
        g.operand = operand.data(), g.fill = &fill, g.out = got.data();
        g.indices = paired ? pairs.data() : along.data();
        gather(g);
        EXPECT_EQ(got, want) << rows << " " << paired;
        std::fill(got.begin(), got.end(), 0.f);
        for (int part = 2; part >= 0; --part) gather_part(g, part, 3);
        EXPECT_EQ(got, want) << rows << " " << paired;
      }
    }
  }
}

// Elements that are a pitch apart, at indices of both widths, some of which do not fit in 32 bits.
TEST(Gather, ElementsOfAColumn) {
  constexpr int64_t extent = 700, pitch = 5, places = 1029;
  std::vector<std::uint32_t> operand(static_cast<std::size_t>(extent * pitch));
  std::iota(operand.begin(), operand.end(), 0x7f800000u);  // infinity, and NaNs: bits are copied
  std::vector<std::int32_t> near;
  std::vector<int64_t> far;
  for (int64_t k = 0; k < places; ++k) {
    near.push_back(static_cast<std::int32_t>(k * 37 % (extent + 20) - 10));
    far.push_back(k % 50 == 7 ? (int64_t{1} << 32) + 3 : k % 50 == 9 ? INT64_MIN : near.back());
  }
  const std::uint32_t fill = 5;
  for (const IndexMode mode : {IndexMode::clip, IndexMode::fill_or_drop}) {
    for (const bool wide : {false, true}) {
      std::vector<std::uint32_t> got(places, 77), want;
      for (int64_t k = 0; k < places; ++k) {
        const int64_t i =
            wide ? far[static_cast<std::size_t>(k)] : near[static_cast<std::size_t>(k)];
        const bool inside = mode == IndexMode::clip || (i >= 0 && i < extent);
        const int64_t row = std::clamp<int64_t>(i, 0, extent - 1);
        want.push_back(inside ? operand[static_cast<std::size_t>(row * pitch)] : fill);
      }
      Gather g;
      g.dims.collapsed_slice_dims.push_back(0);
      g.dims.start_index_map.push_back(0);
      g.dims.offset_dims.push_back(1);
      g.operand_shape = {extent, pitch}, g.indices_shape = {places, 1}, g.slice_sizes = {1, 1};
      g.mode = mode;
      g.index_dtype = wide ? i64 : i32;
      g.itemsize = 4;
      g.operand = operand.data(), g.fill = &fill, g.out = got.data();
      g.indices = wide ? static_cast<const void*>(far.data()) : near.data();
      gather(g);
      EXPECT_EQ(got, want) << wide;
      std::fill(got.begin(), got.end(), 0u);
      for (int part = 2; part >= 0; --part) gather_part(g, part, 3);
      EXPECT_EQ(got, want) << wide;
    }
  }
}

// With a table without elements every slice is filled.
TEST(Gather, ElementsOfNothingAreFilled) {
  const std::vector<std::int32_t> indices = {0, -1, 5};
  std::vector<float> out(3, 9.f);
  const float fill = -1.f;
  Gather g;
  g.dims.collapsed_slice_dims.push_back(0);
  g.dims.start_index_map.push_back(0);
  g.operand_shape = {0}, g.indices_shape = {3, 1}, g.slice_sizes = {1};
  g.mode = IndexMode::fill_or_drop;
  g.itemsize = 4;
  g.indices = indices.data(), g.fill = &fill, g.out = out.data();
  gather(g);
  EXPECT_EQ(out, std::vector<float>(3, fill));
}

TEST(Gather, UnsignedIndicesBeyondEveryArrayAreOutOfBounds) {
  const std::vector<float> operand = {1.f, 2.f, 3.f};
  const std::vector<std::uint64_t> indices = {std::numeric_limits<std::uint64_t>::max(), 1};
  std::vector<float> out(2);
  const float fill = -1.f;
  Gather g;
  g.dims.collapsed_slice_dims.push_back(0);
  g.dims.start_index_map.push_back(0);
  g.operand_shape = {3}, g.indices_shape = {2, 1}, g.slice_sizes = {1};
  g.index_dtype = u64;
  g.itemsize = 4;
  g.operand = operand.data(), g.indices = indices.data(), g.fill = &fill, g.out = out.data();
  g.mode = IndexMode::clip;
  gather(g);
  EXPECT_EQ(out, (std::vector<float>{3.f, 2.f}));
  g.mode = IndexMode::fill_or_drop;
  gather(g);
  EXPECT_EQ(out, (std::vector<float>{-1.f, 2.f}));
  g.index_dtype = f32;
  EXPECT_THROW(gather(g), TypeError);
}

template <class T>
T apply(ScatterKind op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    switch (op) {
      case ScatterKind::set:
        return b;
      case ScatterKind::add:
      case ScatterKind::max:
        return a || b;
      default:
        return a && b;
    }
  } else {
    // Values are small integers: exact in double, and in T but for wrapping.
    const double x = static_cast<double>(a), y = static_cast<double>(b);
    const double r = op == ScatterKind::set   ? y
                     : op == ScatterKind::add ? x + y
                     : op == ScatterKind::mul ? x * y
                     : op == ScatterKind::min ? std::min(x, y)
                                              : std::max(x, y);
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::uint64_t>(static_cast<int64_t>(r)));
    else
      return T(static_cast<float>(r));
  }
}

template <class T, class Index>
void check_scatter(const Problem& p, ScatterKind op, Rng& rng) {
  // std::vector<bool> is not an array of bools, so that bytes represent them.
  using Store = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
  const auto value = [&] {
    return static_cast<Store>(
        T(static_cast<float>(rng() % 2 + (std::is_same_v<T, bool> ? 0 : rng() % 2))));
  };
  std::vector<Store> operand(static_cast<std::size_t>(p.operand.num_elements()));
  std::vector<Store> updates(static_cast<std::size_t>(p.out.num_elements()));
  for (Store& v : operand) v = value();
  for (Store& v : updates) v = value();
  std::vector<Store> want = operand;
  // Windows in order of their batch index, then elements: the reference orders all updates so.
  std::vector<std::size_t> order(updates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto batch_of = [&](std::size_t i) {
    std::vector<int64_t> batch;
    const auto index = unravel(static_cast<int64_t>(i), p.out);
    for (std::size_t d = 0; d < index.size(); ++d)
      if (!contains(p.dims.offset_dims, static_cast<int64_t>(d))) batch.push_back(index[d]);
    return batch;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return batch_of(a) < batch_of(b); });
  for (std::size_t i : order) {
    std::vector<int64_t> to;
    if (!source(p, unravel(static_cast<int64_t>(i), p.out), &to)) continue;
    Store& at = want[static_cast<std::size_t>(ravel(to, p.operand))];
    at = static_cast<Store>(apply<T>(op, static_cast<T>(at), static_cast<T>(updates[i])));
  }
  const std::vector<Index> indices = converted<Index>(p.index);
  Scatter s;
  s.op = op;
  s.dims = p.dims;
  s.dtype = dtype_of<T>;
  s.operand_shape = p.operand, s.indices_shape = p.indices, s.slices_shape = p.out;
  s.index_dtype = dtype_of<Index>;
  s.mode = p.mode, s.from_end = p.from_end;
  s.indices = indices.data(), s.updates = updates.data();
  const auto equal = [](const Store& a, const Store& b) {
    return static_cast<double>(a) == static_cast<double>(b);
  };
  auto got = operand;
  s.operand = got.data();
  scatter(s);
  ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin(), equal)) << short_name(s.dtype);
  got = operand;
  s.operand = got.data();
  for (int part = 2; part >= 0; --part) scatter_part(s, part, 3);
  ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin(), equal)) << short_name(s.dtype);
}

TEST(Scatter, RandomDimensionNumbersMatchReferenceForEveryDtypeAndOp) {
  Rng rng(3);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    const Problem p = random_problem(rng);
    for (const auto op : {ScatterKind::set, ScatterKind::add, ScatterKind::mul, ScatterKind::min,
                          ScatterKind::max}) {
      check_scatter<float, std::int32_t>(p, op, rng);
      check_scatter<double, std::int64_t>(p, op, rng);
      check_scatter<float16, std::int32_t>(p, op, rng);
      check_scatter<bfloat16, std::int32_t>(p, op, rng);
      check_scatter<bool, std::int32_t>(p, op, rng);
      check_scatter<std::int8_t, std::int16_t>(p, op, rng);
      check_scatter<std::int16_t, std::int32_t>(p, op, rng);
      check_scatter<std::int32_t, std::int32_t>(p, op, rng);
      check_scatter<std::int64_t, std::int32_t>(p, op, rng);
      check_scatter<std::uint8_t, std::int32_t>(p, op, rng);
      check_scatter<std::uint16_t, std::int32_t>(p, op, rng);
      check_scatter<std::uint32_t, std::int32_t>(p, op, rng);
      check_scatter<std::uint64_t, std::int32_t>(p, op, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// Updates of one row are added in their order, however the work is divided: by rows, or by columns
// if there are few rows. There are more updates than are looked up at a time.
template <class Index>
void check_many_rows(IndexMode mode) {
  constexpr int64_t places = 1300;
  for (const auto& [rows, columns] : {std::pair{200, 1}, {1, 1}, {40, 5}, {3, 64}}) {
    const auto n = static_cast<std::size_t>(rows * columns);
    std::vector<float> want(n, 0.5f), updates;
    std::vector<Index> indices;
    for (int64_t k = 0; k < places; ++k) {
      indices.push_back(k == 70   ? std::numeric_limits<Index>::min()
                        : k == 90 ? std::numeric_limits<Index>::max()
                                  : static_cast<Index>(k * 31 % (rows + 4) - 2));
      const int64_t row = mode == IndexMode::clip ? std::clamp<int64_t>(indices.back(), 0, rows - 1)
                                                  : indices.back();
      for (int64_t c = 0; c < columns; ++c) {  // sums that depend on their order
        updates.push_back((k % 3 == 0 ? 1e7f : -3e6f) +
                          static_cast<float>(k * columns + c) * 0.37f);
        if (row < 0 || row >= rows) continue;
        want[static_cast<std::size_t>(row * columns + c)] += updates.back();
      }
    }
    Scatter s;
    s.op = ScatterKind::add;
    s.dims.offset_dims.push_back(1);
    s.dims.collapsed_slice_dims.push_back(0);
    s.dims.start_index_map.push_back(0);
    s.operand_shape = {rows, columns}, s.indices_shape = {places, 1};
    s.slices_shape = {places, columns};
    s.index_dtype = dtype_of<Index>;
    s.mode = mode;
    s.indices = indices.data(), s.updates = updates.data();
    for (const int parts : {1, 2, 3}) {
      std::vector<float> got(n, 0.5f);
      s.operand = got.data();
      for (int part = parts - 1; part >= 0; --part) scatter_part(s, part, parts);
      EXPECT_EQ(got, want) << rows << " x " << columns << " in " << parts;
    }
  }
}

TEST(Scatter, ManyRowsAddUpInOrder) {
  for (const IndexMode mode : {IndexMode::fill_or_drop, IndexMode::clip}) {
    check_many_rows<std::int32_t>(mode);
    check_many_rows<int64_t>(mode);
  }
}

TEST(Scatter, NanStaysInMinAndMaxAndKeysCanOnlyBeSet) {
  std::vector<float> operand = {1.f, NAN, 3.f};
  const std::vector<float> updates = {NAN, 2.f, 5.f};
  const std::vector<std::int32_t> indices = {0, 1, 2};
  Scatter s;
  s.dims.collapsed_slice_dims.push_back(0);
  s.dims.start_index_map.push_back(0);
  s.operand_shape = {3}, s.indices_shape = {3, 1}, s.slices_shape = {3};
  s.operand = operand.data(), s.indices = indices.data(), s.updates = updates.data();
  s.op = ScatterKind::max;
  s.mode = IndexMode::fill_or_drop;
  scatter(s);
  EXPECT_TRUE(std::isnan(operand[0]));
  EXPECT_TRUE(std::isnan(operand[1]));
  EXPECT_EQ(operand[2], 5.f);
  s.dtype = prng_key;
  EXPECT_THROW(scatter(s), TypeError);
}

}  // namespace
}  // namespace shmap::cpu
