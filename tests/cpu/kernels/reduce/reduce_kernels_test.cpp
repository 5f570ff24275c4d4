#include "core/cpu/kernels/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shmap/error.h"
#include "tests/cpu/kernels/kernel_testing.h"

namespace shmap::cpu {
namespace {

using namespace testing;

struct Extents {
  std::int64_t outer, reduced, inner;
};
const Extents kExtents[] = {{1, 1, 1},    {3, 1, 5},      {1, 2, 1},     {4, 17, 1},  {5, 100, 1},
                            {2, 4096, 1}, {1, 5000, 1},   {1, 12289, 1}, {700, 3, 1}, {2, 33, 3},
                            {1, 1000, 7}, {3, 40, 2},     {2, 9, 64},    {1, 8, 64},  {2, 4, 70},
                            {1, 37, 513}, {1, 70, 1030},  {0, 4, 3},     {2, 4, 0},   {2, 0, 3},
                            {2, 0, 1},    {1, 131849, 1}, {1, 2055, 33}};
const Reduction kOps[] = {
    Reduction::sum, Reduction::prod, Reduction::max, Reduction::min, Reduction::any, Reduction::all,
};

bool exists(Reduction op, DType dtype) {
  const bool bitwise = op == Reduction::any || op == Reduction::all;
  if (dtype == DType::prng_key) return false;
  if (bitwise) return !is_floating(dtype);
  return dtype != DType::bool_ || op == Reduction::max || op == Reduction::min;
}

template <class T>
T integer_step(Reduction op, T a, T b) {
  switch (op) {
    case Reduction::sum:
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    case Reduction::prod:
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    case Reduction::max:
      return std::max(a, b);
    case Reduction::min:
      return std::min(a, b);
    case Reduction::any:
      return static_cast<T>(a | b);
    case Reduction::all:
      return static_cast<T>(a & b);
  }
  return 0;
}

template <class T, class Check>
void each_column(const std::vector<T>& in, const std::vector<T>& out, const Extents& e,
                 Check check) {
  for (std::int64_t o = 0; o < e.outer; ++o) {
    for (std::int64_t i = 0; i < e.inner; ++i) {
      std::vector<T> column;
      for (std::int64_t r = 0; r < e.reduced; ++r)
        column.push_back(in[static_cast<std::size_t>((o * e.reduced + r) * e.inner + i)]);
      check(column, out[static_cast<std::size_t>(o * e.inner + i)]);
    }
  }
}

template <class T>
void check_exact(Reduction op) {  // integers, bool; max and min of floats
  const ReduceFn kernel = reduce_kernel(op, dtype_of<T>);
  ASSERT_NE(kernel, nullptr);
  using E = Element<T>;
  for (const Extents& e : kExtents) {
    SCOPED_TRACE(std::to_string(e.outer) + "," + std::to_string(e.reduced) + "," +
                 std::to_string(e.inner));
    auto in = elements<T>(e.outer * e.reduced * e.inner, 4);
    if constexpr (kIsReal<T>) {  // NaNs in few columns only
      for (std::size_t i = 0; i < in.size(); ++i)
        if (in[i] != in[i] && i % 1000 != 5) in[i] = T(1.f);
    } else if constexpr (!std::is_same_v<T, bool>) {  // odd ones, so that products last
      if (op == Reduction::prod)
        for (auto& x : in) x = static_cast<T>(x | 1);
    }
    std::vector<E> out(static_cast<std::size_t>(e.outer * e.inner) + 1, E(9));
    kernel(in.data(), out.data(), e.outer, e.reduced, e.inner);
    EXPECT_EQ(to_real(out.back()), 9);
    E identity;
    reduce_identity(op, dtype_of<T>, &identity);
    each_column(in, out, e, [&](const std::vector<E>& column, E got) {
      if constexpr (kIsReal<T>) {
        long double want = to_real(identity);
        for (const E x : column) {
          const long double v = to_real(x);
          if (std::isnan(v) || std::isnan(want))
            want = std::nanl("");
          else
            want = op == Reduction::max ? std::max(want, v) : std::min(want, v);
        }
        if (std::isnan(want))
          ASSERT_TRUE(std::isnan(to_real(got)));
        else
          ASSERT_EQ(to_real(got), want);
      } else {
        E want = identity;
        for (const E x : column) want = integer_step(op, want, x);
        ASSERT_EQ(got, want);
      }
    });
  }
}

template <class T>
void check_accurate(Reduction op) {
  const ReduceFn kernel = reduce_kernel(op, dtype_of<T>);
  ASSERT_NE(kernel, nullptr);
  std::mt19937_64 rng(8);
  for (const Extents& e : kExtents) {
    SCOPED_TRACE(std::to_string(e.outer) + "," + std::to_string(e.reduced) + "," +
                 std::to_string(e.inner));
    if (op == Reduction::prod && e.reduced > 6000) continue;
    std::vector<T> in(static_cast<std::size_t>(e.outer * e.reduced * e.inner));
    for (T& x : in) {
      const double u = static_cast<double>(rng() >> 11) * 0x1p-53;
      // Sums of positive numbers cannot cancel; products stay near 1. Half types: a few values
      // (exact), so that sums stay finite.
      if (op == Reduction::sum)
        x = static_cast<T>(static_cast<float>(kIsHalf<T> ? u / 4 : u));
      else
        x = static_cast<T>(static_cast<float>(std::exp((u - 0.5) / 16)));
    }
    std::vector<T> out(static_cast<std::size_t>(e.outer * e.inner) + 1, T(9.f));
    kernel(in.data(), out.data(), e.outer, e.reduced, e.inner);
    EXPECT_EQ(to_real(out.back()), 9);
    each_column(in, out, e, [&](const std::vector<T>& column, T got) {
      long double want = op == Reduction::sum ? 0 : 1;
      for (const T x : column) want = op == Reduction::sum ? want + to_real(x) : want * to_real(x);
      const double n = static_cast<double>(column.size());
      double budget = op == Reduction::sum ? 1 + std::log2(n + 1) / 2 : 1 + n / 2;
      if (kIsHalf<T>) budget = 0.5 + budget * 0x1p-12;
      ASSERT_LE(ulps(got, want), budget) << static_cast<double>(want);
    });
  }
}

TEST(ReduceKernels, EveryOpOfEveryDType) {
  for (const DType dtype : kNumericDTypes) {
    for (const Reduction op : kOps) {
      SCOPED_TRACE(to_string(dtype) + " " + std::to_string(static_cast<int>(op)));
      ASSERT_EQ(reduce_kernel(op, dtype) != nullptr, exists(op, dtype));
      if (!exists(op, dtype)) continue;
      with_type(dtype, [&]<class T>() {
        if constexpr (kIsReal<T>) {
          if (op == Reduction::sum || op == Reduction::prod) return check_accurate<T>(op);
        }
        check_exact<T>(op);
      });
    }
  }
  EXPECT_EQ(reduce_kernel(Reduction::sum, DType::prng_key), nullptr);
}

TEST(ReduceKernels, EmptyReductionsGiveTheIdentity) {
  float out[2] = {5, 5};
  reduce_kernel(Reduction::max, f32)(nullptr, out, 1, 0, 2);
  EXPECT_EQ(out[1], -std::numeric_limits<float>::infinity());
  reduce_kernel(Reduction::sum, f32)(nullptr, out, 2, 0, 1);
  EXPECT_EQ(out[0] + out[1], 0);
  std::int16_t lowest;
  reduce_kernel(Reduction::max, i16)(nullptr, &lowest, 1, 0, 1);
  EXPECT_EQ(lowest, -32768);
  std::uint16_t bits;
  reduce_kernel(Reduction::min, bf16)(nullptr, &bits, 1, 0, 1);
  EXPECT_EQ(bits, 0x7f80);
  std::uint8_t all;
  reduce_kernel(Reduction::all, DType::bool_)(nullptr, &all, 1, 0, 1);
  EXPECT_EQ(all, 1);
}

// The order in which floats are added, in plain code; it is the same on every machine.
float sum_in_order(const std::vector<float>& x) {
  const auto run = [](const float* p, std::size_t n) {
    std::vector<float> lanes(p, p + std::min<std::size_t>(n, 64));
    for (std::size_t i = 64; i < n; ++i) lanes[i % 64] += p[i];
    for (std::size_t m = lanes.size(); m > 1;) {
      const std::size_t half = std::bit_ceil(m) / 2;
      for (std::size_t j = 0; j + half < m; ++j) lanes[j] += lanes[j + half];
      m = half;
    }
    return lanes[0];
  };
  std::vector<std::pair<float, int>> stack;  // subtrees and their heights
  for (std::size_t at = 0; at < x.size(); at += 4096) {
    stack.emplace_back(run(&x[at], std::min<std::size_t>(4096, x.size() - at)), 0);
    while (stack.size() > 1 && stack.back().second == stack[stack.size() - 2].second) {
      const float right = stack.back().first;
      stack.pop_back();
      stack.back() = {stack.back().first + right, stack.back().second + 1};
    }
  }
  for (; stack.size() > 1; stack.pop_back()) stack[stack.size() - 2].first += stack.back().first;
  return stack[0].first;
}

TEST(ReduceKernels, TheOrderDependsOnTheLengthAlone) {
  std::mt19937_64 rng(2);
  for (const std::int64_t n :
       {1, 3, 31, 63, 64, 65, 127, 128, 129, 1000, 4096, 4097, 20000, 100001}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = static_cast<float>(rng() >> 40) * 0x1p-24f - 0.3f;
    float got;
    reduce_kernel(Reduction::sum, f32)(x.data(), &got, 1, n, 1);
    EXPECT_EQ(got, sum_in_order(x)) << n;
  }
}

// Parts of `inner`, each reduced by itself, give the same bits.
TEST(ReduceKernels, SplittingWideRowsChangesNothing) {
  const std::int64_t rows = 300, inner = 700;
  const auto in = values<float>(rows * inner, 6);
  std::vector<float> finite(in);
  for (float& x : finite)
    if (!(std::fabs(x) < 1e10f)) x = 1;
  std::vector<float> whole(static_cast<std::size_t>(inner));
  const ReduceFn kernel = reduce_kernel(Reduction::sum, f32);
  kernel(finite.data(), whole.data(), 1, rows, inner);
  for (const std::int64_t width : {64, 100, 511}) {
    std::vector<float> part, out(static_cast<std::size_t>(width));
    for (std::int64_t r = 0; r < rows; ++r)
      part.insert(part.end(), finite.begin() + r * inner + 33,
                  finite.begin() + r * inner + 33 + width);
    kernel(part.data(), out.data(), 1, rows, width);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), whole.begin() + 33)) << width;
  }
}

// Rows at any addresses, some of them used several times, give the bits of the same rows in a
// block.
template <class T>
void check_rows_apart(Reduction op) {
  std::mt19937_64 rng(9);
  for (const Extents& e :
       {Extents{3, 1, 5}, Extents{2, 2, 64}, Extents{5, 16, 64}, Extents{4, 7, 3},
        Extents{2, 31, 33}, Extents{3, 21, 513}, Extents{1, 200, 1030}, Extents{2, 100, 64},
        Extents{2, 24, 17}, Extents{1, 57, 64}, Extents{1, 113, 100}}) {
    SCOPED_TRACE(std::to_string(e.outer) + "," + std::to_string(e.reduced) + "," +
                 std::to_string(e.inner));
    ASSERT_TRUE(reduces_rows_apart(e.reduced, e.inner));
    using E = Element<T>;
    const auto table = elements<T>(50 * e.inner, 7);
    std::vector<E> block;
    std::vector<const void*> rows;
    for (std::int64_t r = 0; r < e.outer * e.reduced; ++r) {
      const auto from = table.begin() + static_cast<std::int64_t>(rng() % 50) * e.inner;
      rows.push_back(&*from);
      block.insert(block.end(), from, from + e.inner);
    }
    std::vector<E> want(static_cast<std::size_t>(e.outer * e.inner)), got(want.size() + 1, E(9));
    reduce_kernel(op, dtype_of<T>)(block.data(), want.data(), e.outer, e.reduced, e.inner);
    reduce_rows_apart(op, dtype_of<T>, rows.data(), got.data(), e.outer, e.reduced, e.inner);
    EXPECT_EQ(to_real(got.back()), 9);
    got.pop_back();
    EXPECT_TRUE(same_bits_but_of_nans(got, want));
  }
}

TEST(ReduceKernels, RowsThatLieApart) {
  EXPECT_FALSE(reduces_rows_apart(16, 1));
  EXPECT_FALSE(reduces_rows_apart(100, 63));
  EXPECT_FALSE(reduces_rows_apart(0, 64));
  for (const Reduction op : kOps) {
    for (const DType dtype : kNumericDTypes) {
      SCOPED_TRACE(to_string(dtype) + " " + to_string(op));
      if (exists(op, dtype)) with_type(dtype, [&]<class T>() { check_rows_apart<T>(op); });
    }
  }
}

template <class T>
void check_blocks(Reduction op) {
  for (const std::int64_t n : {std::int64_t{1}, kReduceBlock, kReduceBlock + 1,
                               std::int64_t{200000}, std::int64_t{333333}}) {
    auto in = elements<T>(n, 12);
    if constexpr (kIsReal<T>) {
      for (auto& x : in)
        if (!(std::fabs(to_real(x)) < 100)) x = T(0.5f);
    }
    Element<T> whole, from_blocks;
    reduce_kernel(op, dtype_of<T>)(in.data(), &whole, 1, n, 1);
    const std::int64_t count = reduce_block_count(n);
    std::vector<std::byte> partials(
        static_cast<std::size_t>(count * itemsize(reduce_partial_dtype(dtype_of<T>))));
    const std::int64_t half = count / 2;  // as two threads would
    reduce_blocks(op, dtype_of<T>, in.data(), n, half, count, partials.data());
    reduce_blocks(op, dtype_of<T>, in.data(), n, 0, half, partials.data());
    reduce_partials(op, dtype_of<T>, partials.data(), count, &from_blocks);
    EXPECT_EQ(std::memcmp(&whole, &from_blocks, sizeof(whole)), 0) << n;
  }
}

TEST(ReduceKernels, BlocksGiveTheBitsOfTheWhole) {
  check_blocks<float>(Reduction::sum);
  check_blocks<double>(Reduction::sum);
  check_blocks<bfloat16>(Reduction::sum);
  check_blocks<float16>(Reduction::max);
  check_blocks<float>(Reduction::prod);
  check_blocks<std::int32_t>(Reduction::sum);
  check_blocks<std::uint8_t>(Reduction::all);
  check_blocks<bool>(Reduction::any);
  float identity;
  reduce_partials(Reduction::min, f32, nullptr, 0, &identity);
  EXPECT_EQ(identity, std::numeric_limits<float>::infinity());
  EXPECT_THROW(reduce_blocks(Reduction::sum, DType::bool_, nullptr, 0, 0, 0, nullptr), TypeError);
  EXPECT_THROW(reduce_partials(Reduction::any, f32, nullptr, 0, nullptr), TypeError);
}

}  // namespace
}  // namespace shmap::cpu
