#include "core/cpu/kernels/sort/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "shmap/error.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

using Rng = std::mt19937_64;
using std::int64_t;

template <class T>
T random_value(Rng& rng) {
  if constexpr (std::is_integral_v<T>) {
    return rng() % 2 == 0 ? static_cast<T>(rng()) : static_cast<T>(rng() % 5);
  } else {
    using Limits = std::numeric_limits<float>;
    switch (rng() % 12) {
      case 0:
        return T(Limits::quiet_NaN());
      case 1:
        return T(-Limits::quiet_NaN());
      case 2:
        return T(Limits::infinity());
      case 3:
        return T(-Limits::infinity());
      case 4:
        return T(0.f);
      case 5:
        return T(-0.f);
      default:
        return T(static_cast<float>(static_cast<int>(rng() % 41) - 20) / 4.f);
    }
  }
}

// True if a comes before b, in the words of the contract.
template <class T>
bool before(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a < b;
  } else {
    const double x = static_cast<double>(a), y = static_cast<double>(b);
    if (std::isnan(x)) return false;
    return std::isnan(y) || x < y;
  }
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void check_sort(int64_t outer, int64_t len, int64_t inner, bool descending, DType dtype, Rng& rng) {
  const auto count = static_cast<std::size_t>(outer * len * inner);
  std::vector<T> keys(count), want(count), got(count);
  std::vector<std::int32_t> want_index(count), got_index(count);
  struct Payload {
    std::uint32_t a, b, c;
    bool operator==(const Payload&) const = default;
  };
  std::vector<Payload> payload(count), want_payload(count), got_payload(count);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = random_value<T>(rng);
    if (dtype == bool_) keys[i] = static_cast<T>(static_cast<double>(keys[i]) > 2);
    payload[i] = {static_cast<std::uint32_t>(rng()), 7, static_cast<std::uint32_t>(i)};
  }
  for (int64_t line = 0; line < outer * inner; ++line) {
    const auto at = [&](int64_t i) {
      return static_cast<std::size_t>(line / inner * len * inner + i * inner + line % inner);
    };
    std::vector<std::int32_t> order(static_cast<std::size_t>(len));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return descending ? before(keys[at(b)], keys[at(a)]) : before(keys[at(a)], keys[at(b)]);
    });
    for (int64_t i = 0; i < len; ++i) {
      const std::int32_t from = order[static_cast<std::size_t>(i)];
      want[at(i)] = keys[at(from)];
      want_index[at(i)] = from;
      want_payload[at(i)] = payload[at(from)];
    }
  }
  const SortPayload payloads[] = {{sizeof(Payload), payload.data(), got_payload.data()}};
  SortPass s;
  s.dtype = dtype;
  s.outer = outer, s.len = len, s.inner = inner;
  s.descending = descending;
  s.keys = keys.data(), s.sorted = got.data(), s.indices = got_index.data();
  s.payloads = payloads;
  sort(s);
  const auto what = [&] {
    return std::string(short_name(dtype)) + " " + std::to_string(outer) + "," +
           std::to_string(len) + "," + std::to_string(inner) + (descending ? " descending" : "");
  };
  ASSERT_TRUE(same_bits(got, want)) << what();
  ASSERT_EQ(got_index, want_index) << what();
  ASSERT_EQ(got_payload, want_payload) << what();
  // Sorts in parts; each part of a long line sorts a range of keys.
  for (const int parts : {2, 5}) {
    std::fill(got.begin(), got.end(), T{});
    std::fill(got_index.begin(), got_index.end(), -1);
    std::fill(got_payload.begin(), got_payload.end(), Payload{});
    for (int part = parts; part-- > 0;) sort_part(s, part, parts);
    ASSERT_TRUE(same_bits(got, want)) << what() << " in " << parts << " parts";
    ASSERT_EQ(got_index, want_index) << what() << " in " << parts << " parts";
    ASSERT_EQ(got_payload, want_payload) << what() << " in " << parts << " parts";
  }
  // Sorts in place and in parts.
  auto in_place = keys;
  auto payload_in_place = payload;
  const SortPayload in_place_payloads[] = {
      {sizeof(Payload), payload_in_place.data(), payload_in_place.data()}};
  s.keys = s.sorted = in_place.data();
  s.indices = nullptr;
  s.payloads = in_place_payloads;
  for (int part = 0; part < 3; ++part) sort_part(s, part, 3);
  ASSERT_TRUE(same_bits(in_place, want)) << what();
  ASSERT_EQ(payload_in_place, want_payload) << what();
}

template <class T>
void check_sorts(DType dtype) {
  Rng rng(4);
  for (const auto [outer, len, inner] : {std::array<int64_t, 3>{1, 0, 1},
                                         {0, 3, 2},
                                         {1, 1, 1},
                                         {3, 17, 1},
                                         {2, 40, 5},
                                         {1, 511, 1},
                                         {1, 512, 2},
                                         {2, 1500, 1},
                                         {1, 16385, 1},
                                         {3, 33001, 1},
                                         {1, 40013, 2}}) {
    for (bool descending : {false, true}) {
      check_sort<T>(outer, len, inner, descending, dtype, rng);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class T>
void check_top_k(DType dtype) {
  Rng rng(6);
  for (int round = 0; round < 60; ++round) {
    const int64_t outer = static_cast<int64_t>(rng() % 4),
                  len = static_cast<int64_t>(rng() % (round % 3 == 0 ? 700 : 70)),
                  k = static_cast<int64_t>(rng() % static_cast<std::uint64_t>(len + 1));
    std::vector<T> src(static_cast<std::size_t>(outer * len));
    for (T& v : src) {
      v = random_value<T>(rng);
      if (dtype == bool_) v = static_cast<T>(static_cast<double>(v) > 2);
    }
    const auto count = static_cast<std::size_t>(outer * k);
    std::vector<T> want(count), got(count);
    std::vector<std::int32_t> want_index(count), got_index(count);
    for (int64_t n = 0; n < outer; ++n) {
      const T* const row = src.data() + n * len;
      std::vector<std::int32_t> order(static_cast<std::size_t>(len));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return before(row[b], row[a]); });
      for (int64_t i = 0; i < k; ++i) {
        want[static_cast<std::size_t>(n * k + i)] = row[order[static_cast<std::size_t>(i)]];
        want_index[static_cast<std::size_t>(n * k + i)] = order[static_cast<std::size_t>(i)];
      }
    }
    TopK t;
    t.dtype = dtype;
    t.outer = outer, t.len = len, t.k = k;
    t.in = src.data(), t.values = got.data(), t.indices = got_index.data();
    for (int part = 0; part < 2; ++part) top_k_part(t, part, 2);
    ASSERT_TRUE(same_bits(got, want)) << short_name(dtype);
    ASSERT_EQ(got_index, want_index) << short_name(dtype);
  }
}

template <class T>
void check_dtype(DType dtype) {
  check_sorts<T>(dtype);
  check_top_k<T>(dtype);
}

TEST(Sort, EveryDtypeMatchesAStableReference) {
  check_dtype<std::uint8_t>(bool_);
  check_dtype<std::int8_t>(i8);
  check_dtype<std::int16_t>(i16);
  check_dtype<std::int32_t>(i32);
  check_dtype<std::int64_t>(i64);
  check_dtype<std::uint8_t>(u8);
  check_dtype<std::uint16_t>(u16);
  check_dtype<std::uint32_t>(u32);
  check_dtype<std::uint64_t>(u64);
  check_dtype<float16>(f16);
  check_dtype<bfloat16>(bf16);
  check_dtype<float>(f32);
  check_dtype<double>(f64);
}

TEST(Sort, ZerosAreEqualAndNansLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> keys = {0.f, nan, -0.f, 1.f, -nan, -1.f, 0.f};
  std::vector<std::int32_t> indices(keys.size());
  SortPass s;
  s.outer = 1, s.len = 7;
  s.keys = keys.data(), s.indices = indices.data();
  sort(s);
  EXPECT_EQ(indices, (std::vector<std::int32_t>{5, 0, 2, 6, 3, 1, 4}));
  s.descending = true;
  sort(s);
  EXPECT_EQ(indices, (std::vector<std::int32_t>{1, 4, 3, 0, 2, 6, 5}));
  TopK t;
  t.outer = 1, t.len = 7, t.k = 4;
  t.in = keys.data(), t.indices = indices.data();
  indices.resize(4);
  t.indices = indices.data();
  top_k(t);
  EXPECT_EQ(indices, (std::vector<std::int32_t>{1, 4, 3, 0}));
}

// A line whose keys are all equal, all but one equal, ascending, or of few bits.
TEST(Sort, LongLinesOfFewKeys) {
  constexpr int64_t kLen = 50001;
  std::vector<std::int32_t> keys(kLen), want(kLen), got(kLen);
  for (int kind = 0; kind < 5; ++kind) {
    for (int64_t i = 0; i < kLen; ++i) {
      const auto n = static_cast<std::int32_t>(i);
      keys[static_cast<std::size_t>(i)] = kind == 0   ? 7
                                          : kind == 1 ? (i == 30000 ? INT32_MIN : INT32_MAX)
                                          : kind == 2 ? n
                                          : kind == 3 ? -n
                                                      : n * 7919 % 3 - 1;
    }
    std::iota(want.begin(), want.end(), 0);
    std::stable_sort(want.begin(), want.end(), [&](std::int32_t a, std::int32_t b) {
      return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
    });
    SortPass s;
    s.dtype = i32;
    s.outer = 1, s.len = kLen;
    s.keys = keys.data(), s.indices = got.data();
    for (const int parts : {1, 2, 3, 64}) {
      std::fill(got.begin(), got.end(), -1);
      for (int part = 0; part < parts; ++part) sort_part(s, part, parts);
      ASSERT_EQ(got, want) << "kind " << kind << " in " << parts << " parts";
    }
  }
}

// Zeros of both signs at the bound, with NaNs before and after it, in rows longer than the vectors
// with which they are searched.
TEST(Sort, TopKOfRowsWithSpecialValues) {
  const auto check = []<class T>(T, DType dtype) {
    constexpr int64_t kLen = 403;
    for (const int64_t k : {1, 2, 5, 32}) {
      for (int kind = 0; kind < 3; ++kind) {
        std::vector<T> row(kLen, T(-1.f));
        Rng rng(static_cast<std::uint64_t>(kind));
        for (int64_t i = 0; i < kLen; i += 3) {
          const float zero = rng() % 2 == 0 ? 0.f : -0.f;
          row[static_cast<std::size_t>(i)] = T(zero);
        }
        if (kind > 0) {
          for (const std::size_t at : {7u, 200u, 201u, 399u})
            row[at] = T(std::numeric_limits<float>::quiet_NaN());
        }
        if (kind > 1) row[402] = row[100] = T(std::numeric_limits<float>::infinity());
        std::vector<std::int32_t> order(kLen), got(static_cast<std::size_t>(k));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
          return before(row[static_cast<std::size_t>(b)], row[static_cast<std::size_t>(a)]);
        });
        order.resize(static_cast<std::size_t>(k));
        TopK t;
        t.dtype = dtype;
        t.outer = 1, t.len = kLen, t.k = k;
        t.in = row.data(), t.indices = got.data();
        top_k(t);
        ASSERT_EQ(got, order) << short_name(dtype) << " k " << k << " kind " << kind;
      }
    }
  };
  check(float{}, f32);
  check(double{}, f64);
  check(bfloat16{}, bf16);
  check(float16{}, f16);
}

TEST(Sort, KeysHaveNoOrder) {
  std::uint64_t key = 1;
  SortPass s;
  s.dtype = prng_key;
  s.outer = s.len = 1;
  s.keys = s.sorted = &key;
  EXPECT_THROW(sort(s), TypeError);
  TopK t;
  t.dtype = prng_key;
  EXPECT_THROW(top_k(t), TypeError);
}

}  // namespace
}  // namespace shmap::cpu
