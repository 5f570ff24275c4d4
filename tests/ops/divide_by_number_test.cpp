// shmap-test: devices
// floor_divide and remainder of integers by a number of the program, which take fewer operations
// than division by an array: the same values, for every dtype and at both ends of its range.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "shmap/shmap.h"

namespace shmap {
namespace {

// The quotient rounded down, and the remainder, which has the divisor's sign.
std::int64_t floor_of(std::int64_t x, std::int64_t y) {
  return x / y - ((x % y != 0 && (x < 0) != (y < 0)) ? 1 : 0);
}

std::int64_t rest_of(std::int64_t x, std::int64_t y) {
  const std::int64_t r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

template <class T>
std::vector<T> edges() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> out;
  for (int k = 0; k < 25; ++k) {
    out.push_back(static_cast<T>(Limits::min() + k));
    out.push_back(static_cast<T>(Limits::max() - k));
    out.push_back(static_cast<T>(k - 12));
    out.push_back(static_cast<T>(Limits::max() / 2 + k));
    out.push_back(static_cast<T>(Limits::min() / 3 - k));
  }
  return out;
}

template <class T>
void check(T by) {
  const std::vector<T> x = edges<T>();
  const Shape shape{static_cast<std::int64_t>(x.size())};
  const Array values = array(std::span<const T>(x), shape);
  const auto quotient = [by](Array a) { return floor_divide(a, Array(by)); };
  const auto rest = [by](Array a) { return a % Array(by); };
  const std::string what = std::string(to_string(dtype_of<T>)) + " by " + std::to_string(by);
  const auto q = quotient(values).template to_vector<T>(), r = rest(values).template to_vector<T>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::is_signed_v<T> && by == static_cast<T>(-1)) break;  // the least one has no quotient
    EXPECT_EQ(static_cast<std::int64_t>(q[i]), floor_of(x[i], by))
        << what << " of " << std::int64_t{x[i]};
    EXPECT_EQ(static_cast<std::int64_t>(r[i]), rest_of(x[i], by))
        << what << " rest of " << std::int64_t{x[i]};
  }
  // Divides by an array of that number, and in a fused program.
  const Array all = full(shape, by, dtype_of<T>);
  EXPECT_EQ(floor_divide(values, all).template to_vector<T>(), q) << what;
  EXPECT_EQ((values % all).template to_vector<T>(), r) << what;
  EXPECT_EQ(jit(quotient)(values).template to_vector<T>(), q) << what;
  EXPECT_EQ(jit(rest)(values).template to_vector<T>(), r) << what;
}

template <class T>
void check_divisors() {
  for (const int by : {1, 2, 3, 7, 64, 100, 127}) check<T>(static_cast<T>(by));
  check<T>(std::numeric_limits<T>::max());
  if constexpr (std::is_signed_v<T>) {
    for (const int by : {-1, -2, -7, -128}) check<T>(static_cast<T>(by));
    check<T>(std::numeric_limits<T>::min());
  }
}

TEST(DivideByNumber, RoundsDownAtBothEndsOfEveryDtype) {
  check_divisors<std::int8_t>();
  check_divisors<std::int16_t>();
  check_divisors<std::int32_t>();
  check_divisors<std::int64_t>();
  check_divisors<std::uint8_t>();
  check_divisors<std::uint32_t>();
}

TEST(DivideByNumber, OfAPositiveOneIsFourOperationsOrFewer) {
  const auto equations = [](const std::string& text) {
    int n = 0;
    for (std::size_t at = text.find(" = "); at != text.npos; at = text.find(" = ", at + 1)) ++n;
    return n;
  };
  const auto count = [&](auto f) {
    return equations(to_string(make_jaxpr(f)(ShapedArray({5}, i32))));
  };
  EXPECT_EQ(count([](Array a) { return floor_divide(a, 17); }), 4);
  EXPECT_EQ(count([](Array a) { return a % 17; }), 4);
  EXPECT_GT(count([](Array a) { return floor_divide(a, -17); }), 4);
}

}  // namespace
}  // namespace shmap
