// Products of random operands by loops, beside which the tests of the kernels of products hold
// them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "core/cpu/kernels/matmul/gemm.h"
#include "shmap/half.h"

namespace shmap::cpu {

using Rng = std::mt19937_64;

template <class T>
T random_value(Rng& rng) {
  if constexpr (std::is_same_v<T, bool>) {
    return (rng() & 7u) == 0;  // rare, so that "or" does not always give true
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(rng());
  } else {
    // Multiples of 1/4 in [-2, 2]: products and their sums are exact in every type's accumulator.
    return static_cast<T>(static_cast<float>(static_cast<int>(rng() % 17) - 8) / 4.f);
  }
}

struct GemmCase {
  std::int64_t m, n, k;
  bool trans_a, trans_b, accumulate;
  std::int64_t extra;  // elements between the rows' ends and the next rows
};

// Computes a row at a time in the widest type and rounds once.
template <class T, class Out>
void multiply_by_loops(const Gemm& g, Out* c) {
  constexpr bool logical = std::is_same_v<T, bool>;
  using Sum = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
  const auto* const a = static_cast<const T*>(g.a);
  const auto* const b = static_cast<const T*>(g.b);
  const std::int64_t b_row = g.trans_b ? 1 : g.ldb, b_col = g.trans_b ? g.ldb : 1;
  std::vector<Sum> sums(static_cast<std::size_t>(g.n));
  for (std::int64_t i = 0; i < g.m; ++i) {
    Out* const out = c + i * g.ldc;
    for (std::int64_t j = 0; j < g.n; ++j)
      sums[static_cast<std::size_t>(j)] = g.accumulate ? static_cast<Sum>(out[j]) : Sum{};
    for (std::int64_t l = 0; l < g.k; ++l) {
      const Sum x = static_cast<Sum>(a[g.trans_a ? l * g.lda + i : i * g.lda + l]);
      const T* const row = b + l * b_row;
      for (std::int64_t j = 0; j < g.n; ++j) {
        Sum& sum = sums[static_cast<std::size_t>(j)];
        const Sum y = static_cast<Sum>(row[j * b_col]);
        if constexpr (logical)
          sum |= x & y;
        else
          sum += x * y;
      }
    }
    for (std::int64_t j = 0; j < g.n; ++j) {
      const Sum sum = sums[static_cast<std::size_t>(j)];
      if constexpr (std::is_integral_v<T> || std::is_same_v<Out, double>)
        out[j] = static_cast<Out>(sum);
      else
        out[j] = static_cast<Out>(static_cast<float>(sum));
    }
  }
}

// Storage of any T, since std::vector<bool> is not an array.
template <class T>
class GemmData {
 public:
  explicit GemmData(std::int64_t count) : bytes_(static_cast<std::size_t>(count) * sizeof(T)) {}
  T* get() { return reinterpret_cast<T*>(bytes_.data()); }
  void fill(std::int64_t count, Rng& rng) {
    for (std::int64_t i = 0; i < count; ++i) get()[i] = random_value<T>(rng);
  }
  friend bool operator==(const GemmData&, const GemmData&) = default;

 private:
  std::vector<std::uint8_t> bytes_;
};

using Multiply = void (*)(const Gemm&);

// `run` of random operands gives what loops give, and writes nothing between the rows of c.
template <class T, class Out = T>
void check_case(const GemmCase& c, Multiply run, Rng& rng) {
  Gemm g;
  g.dtype = dtype_of<T>;
  g.out = dtype_of<Out>;
  g.m = c.m, g.n = c.n, g.k = c.k;
  g.trans_a = c.trans_a, g.trans_b = c.trans_b, g.accumulate = c.accumulate;
  g.lda = std::max<std::int64_t>(1, (c.trans_a ? c.m : c.k) + c.extra);
  g.ldb = std::max<std::int64_t>(1, (c.trans_b ? c.k : c.n) + c.extra);
  g.ldc = std::max<std::int64_t>(1, c.n + c.extra);
  const std::int64_t size_a = (c.trans_a ? c.k : c.m) * g.lda + 1;
  const std::int64_t size_b = (c.trans_b ? c.n : c.k) * g.ldb + 1;
  const std::int64_t size_c = c.m * g.ldc + 1;
  GemmData<T> a(size_a), b(size_b);
  GemmData<Out> got(size_c);
  a.fill(size_a, rng);
  b.fill(size_b, rng);
  got.fill(size_c, rng);
  GemmData<Out> want = got;
  g.a = a.get();
  g.b = b.get();
  g.c = want.get();
  multiply_by_loops<T, Out>(g, want.get());
  g.c = got.get();
  run(g);
  EXPECT_EQ(got, want) << short_name(g.dtype) << " -> " << short_name(g.out) << " " << c.m << "x"
                       << c.n << "x" << c.k << " trans " << c.trans_a << c.trans_b << " accumulate "
                       << c.accumulate << " extra " << c.extra;
}

// In seven parts, the last one first.
inline void run_in_parts(const Gemm& g) {
  for (int part = 6; part >= 0; --part) gemm_part(g, part, 7);
}

}  // namespace shmap::cpu
