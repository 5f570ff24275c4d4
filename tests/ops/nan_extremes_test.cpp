// shmap-test: devices
// A NaN at any place of a row makes its maximum and minimum NaN, and argmax and argmin find it:
// eagerly, under jit, by elements, and over devices.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

// Row r of the n rows has a NaN at place r; the other values increase or decrease along the row.
Array rows_with_a_nan(std::int64_t n, bool negative_nan, DType dtype) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values;
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < n; ++c)
      values.push_back(c == r       ? std::copysign(nan, negative_nan ? -1. : 1.)
                       : r % 2 == 0 ? static_cast<double>(c - n / 2)
                                    : static_cast<double>(n / 2 - c));
  return astype(array<double>(values, {n, n}), dtype);
}

int not_nan(const Array& x) {
  int count = 0;
  for (const double v : astype(x, f64).to_vector<double>()) count += !std::isnan(v);
  return count;
}

class NanExtremes : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  Array rows(std::int64_t n) const {
    return rows_with_a_nan(n, std::get<1>(GetParam()), std::get<0>(GetParam()));
  }
};

TEST_P(NanExtremes, OfRowsAndColumns) {
  const auto all = [](Array x) {
    return std::vector<Array>{max(x, Dims{1}), min(x, Dims{1}), max(x, Dims{0}),
                              min(x, Dims{0}), max(x),          min(x)};
  };
  const auto of_products = jit([&](Array x) { return all(x * 1.f); });
  for (std::int64_t n = 1; n <= 60; ++n) {
    const Array x = rows(n);
    for (const Array& y : all(x)) EXPECT_EQ(not_nan(y), 0) << n;
    for (const Array& y : of_products(x)) EXPECT_EQ(not_nan(y), 0) << n << " under jit";
  }
}

TEST_P(NanExtremes, AreFoundByTheirPlaces) {
  for (std::int64_t n = 1; n <= 60; ++n) {
    const Array x = rows(n), places = arange(n);
    EXPECT_TRUE(all(argmax(x, 1) == places).item<bool>()) << n;
    EXPECT_TRUE(all(argmin(x, 1) == places).item<bool>()) << n;
  }
}

TEST_P(NanExtremes, OfElements) {
  const auto all = [](Array x) {
    const Array zero = zeros_like(x);
    return std::vector<Array>{maximum(x, zero), maximum(zero, x), minimum(x, zero),
                              minimum(zero, x), relu(x),          clip(x, zero - 1.f, zero + 1.f)};
  };
  const auto under_jit = jit([&](Array x) { return all(x * 1.f); });
  for (std::int64_t n = 1; n <= 60; ++n) {
    const Array x = rows(n);
    const int others = static_cast<int>(n * n - n);
    for (const Array& y : all(x)) EXPECT_EQ(not_nan(y), others) << n;
    for (const Array& y : under_jit(x)) EXPECT_EQ(not_nan(y), others) << n << " under jit";
  }
}

TEST_P(NanExtremes, OverDevices) {
  const auto n = static_cast<std::int64_t>(devices().size());
  const Mesh mesh = make_mesh({n}, "i");
  for (std::int64_t width = 1; width <= 40; ++width) {
    const Array x = tile(rows(n), {1, width});
    const auto f = shard_map(
        [](Array b) {
          return std::pair{pmax(b, "i"), pmin(b, "i")};
        },
        mesh, P("i"), {P(), P()});
    const auto [larger, smaller] = f(x);
    EXPECT_EQ(not_nan(larger), 0) << width;
    EXPECT_EQ(not_nan(smaller), 0) << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, NanExtremes,
                         testing::Combine(testing::Values(f32, f64, bf16, f16), testing::Bool()),
                         [](const auto& info) {
                           return std::string(short_name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_negative" : "_positive");
                         });

}  // namespace
}  // namespace shmap
