// Code that the tests of reductions, scans, sorting and gathering share: arrays of any dtype as
// bytes.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "shmap/dtype.h"
#include "tests/cpu/kernels/kernel_testing.h"

namespace shmap::cuda::testing {

using Bytes = std::vector<std::uint8_t>;
using cpu::testing::kNumericDTypes;
using cpu::testing::with_type;

// The kinds of random items.
enum class Items {
  small,    // -8 … 8: f32 sums of some thousands are exact
  factors,  // mostly 1, and few powers of two that make no product of a hundred over- or underflow
  special,  // floats: NaN, infinities and both zeros among numbers; else all values
};

template <class T>
T item_of(Items items, std::mt19937& random) {
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  if constexpr (std::is_same_v<T, bool>) {
    return below(2) == 1;
  } else if constexpr (std::is_integral_v<T>) {
    if (items == Items::factors) return static_cast<T>(below(8) == 0 ? 2 + below(3) : 1);
    const bool any = items == Items::special && below(2) == 0;
    return static_cast<T>(any ? (static_cast<std::uint64_t>(random()) << 32 | random())
                              : static_cast<std::uint64_t>(below(17) - 8));
  } else {
    constexpr float inf = std::numeric_limits<float>::infinity();
    constexpr float specials[] = {NAN, -NAN, inf, -inf, 0.0f, -0.0f};
    if (items == Items::factors) {
      constexpr float factors[] = {2.0f, 0.5f, -1.0f, -2.0f, -0.5f};
      return T(below(8) == 0 ? factors[below(5)] : 1.0f);
    }
    if (items == Items::special && below(6) == 0) return T(specials[below(6)]);
    return T(static_cast<float>(below(17) - 8));
  }
}

inline Bytes items_of(DType dtype, std::int64_t n, Items items, unsigned seed) {
  Bytes bytes(static_cast<std::size_t>(n * itemsize(dtype)));
  std::mt19937 random(seed);
  with_type(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < n; ++i) {
      const T item = item_of<T>(items, random);
      std::memcpy(bytes.data() + i * itemsize(dtype), &item, sizeof(T));
    }
  });
  return bytes;
}

// Equal bits, or NaN on both sides, or, of floats, the difference relative to `want`.
inline void expect_items(DType dtype, const Bytes& got, const Bytes& want, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  with_type(dtype, [&]<class T>() {
    for (std::size_t i = 0; i * sizeof(T) < got.size(); ++i) {
      T a, b;
      std::memcpy(&a, got.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&b, want.data() + i * sizeof(T), sizeof(T));
      if (std::memcmp(&a, &b, sizeof(T)) == 0) continue;
      const auto x = static_cast<double>(a), y = static_cast<double>(b);
      if (x != x && y != y) continue;
      if (is_floating(dtype) && std::fabs(x - y) <= tolerance * std::fabs(y) && tolerance > 0)
        continue;
      ADD_FAILURE() << what << " of " << to_string(dtype) << ": item " << i << " is " << x
                    << " and should be " << y;
      return;
    }
  });
}

}  // namespace shmap::cuda::testing
