#include "core/cpu/kernels/reduce/combine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "shmap/error.h"
#include "tests/cpu/kernels/kernel_testing.h"

namespace shmap::cpu {
namespace {

using namespace testing;

template <class T>
T step(Reduction op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case Reduction::sum:
        return a + b;
      case Reduction::prod:
        return a * b;
      case Reduction::max:
        if (a == b) return std::signbit(a) ? b : a;
        return a != a || a > b ? a : b;
      default:
        if (a == b) return std::signbit(a) ? a : b;
        return a != a || a < b ? a : b;
    }
  } else {
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
}

// The tree as the header describes it: fold ranks beyond the power of two, then distances 1, 2, 4,
// …
template <class A>
A tree(Reduction op, std::vector<A> leaves) {
  const std::size_t p = std::bit_floor(leaves.size());
  for (std::size_t i = p; i < leaves.size(); ++i)
    leaves[i - p] = step(op, leaves[i - p], leaves[i]);
  for (std::size_t distance = 1; distance < p; distance *= 2)
    for (std::size_t i = 0; i < p; i += 2 * distance)
      leaves[i] = step(op, leaves[i], leaves[i + distance]);
  return leaves[0];
}

template <class T>
void check(Reduction op, int n, std::int64_t size, std::int64_t begin, std::int64_t end, int into,
           bool non_temporal) {
  using E = Element<T>;
  using A = std::conditional_t<kIsHalf<T>, float, E>;
  SCOPED_TRACE(to_string(dtype_of<T>) + " op " + std::to_string(static_cast<int>(op)) + " of " +
               std::to_string(n) + " ranks, " + std::to_string(begin) + " to " +
               std::to_string(end) + (non_temporal ? " non-temporal" : "") + ", into " +
               std::to_string(into));
  std::vector<std::vector<E>> ranks;
  std::vector<const void*> pointers;
  for (int r = 0; r < n; ++r) ranks.push_back(elements<T>(size, static_cast<unsigned>(100 + r)));
  const auto given = ranks;
  for (int r = 0; r < n; ++r) pointers.push_back(ranks[static_cast<std::size_t>(r)].data());
  std::vector<E> apart(static_cast<std::size_t>(size), E(3));
  std::vector<E>& out = into < 0 ? apart : ranks[static_cast<std::size_t>(into)];
  const std::vector<E> before = out;
  combine_ranks(op, dtype_of<T>, pointers.data(), n, out.data(), begin, end, non_temporal);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i < begin || i >= end) {
      ASSERT_EQ(std::memcmp(&out[at], &before[at], sizeof(E)), 0) << "wrote outside, at " << i;
      continue;
    }
    std::vector<A> leaves;
    for (const auto& rank : given) leaves.push_back(static_cast<A>(rank[at]));
    const E want = static_cast<E>(tree(op, leaves));
    if (want != want)
      ASSERT_NE(out[at], out[at]) << i;
    else
      ASSERT_EQ(std::memcmp(&out[at], &want, sizeof(E)), 0)
          << i << ": " << static_cast<double>(to_real(out[at])) << ", not "
          << static_cast<double>(to_real(want));
  }
}

TEST(CombineRanks, IsTheBalancedTreeInRankOrder) {
  for (int n = 1; n <= 20; ++n) {
    check<float>(Reduction::sum, n, 1100, 0, 1100, -1, false);
    check<float>(Reduction::sum, n, 1100, 3, 1033, n / 2, true);
    check<bfloat16>(Reduction::sum, n, 1100, 5, 1100, 0, false);
  }
  for (const int n : {31, 32, 33, 64, 100, 512}) {
    check<float>(Reduction::sum, n, 600, 7, 560, -1, false);
    check<float16>(Reduction::prod, n, 600, 7, 560, n - 1, true);
    check<double>(Reduction::sum, n, 600, 0, 600, 1, false);
  }
}

TEST(CombineRanks, EveryOpOfEveryDType) {
  for (const DType dtype : kNumericDTypes) {
    for (int o = 0; o < kReductionCount; ++o) {
      const auto op = static_cast<Reduction>(o);
      if (!reduce_kernel(op, dtype)) {
        std::uint64_t none = 0;
        const void* rank = &none;
        EXPECT_THROW(combine_ranks(op, dtype, &rank, 1, &none, 0, 1), TypeError);
        continue;
      }
      with_type(dtype, [&]<class T>() {
        for (const int n : {1, 2, 3, 4, 6, 8, 11, 16}) {
          check<T>(op, n, 300, 0, 300, -1, false);
          check<T>(op, n, 300, 1, 290, n - 1, false);
          check<T>(op, n, 5000, 3, 4999, -1, true);
        }
      });
    }
  }
}

TEST(CombineRanks, EmptyRangesWriteNothing) {
  check<float>(Reduction::sum, 4, 10, 5, 5, -1, false);
  check<bfloat16>(Reduction::sum, 3, 10, 0, 0, 1, true);
}

}  // namespace
}  // namespace shmap::cpu
