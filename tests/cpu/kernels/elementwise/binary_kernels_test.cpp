#include "core/cpu/kernels/elementwise/binary.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/cpu/kernels/elementwise/compare.h"
#include "tests/cpu/kernels/kernel_testing.h"

namespace shmap::cpu {
namespace {

using namespace testing;

// Runs a kernel on vectors and on scalar operands, with separate results and in place, and checks
// each result with check(a, b, result).
template <class T, class R, class Check>
void run_all_forms(BinaryFn kernel, Check check, unsigned seed = 1) {
  ASSERT_NE(kernel, nullptr);
  using E = Element<T>;
  for (const std::int64_t n : kSizes) {
    const auto a = elements<T>(std::max<std::int64_t>(n, 1), seed + 10 * unsigned(n));
    const auto b = elements<T>(std::max<std::int64_t>(n, 1), seed + 10 * unsigned(n) + 1);
    for (int form = 0; form < 4; ++form) {
      const bool a_scalar = form & 1, b_scalar = form & 2;
      std::vector<R> out(static_cast<std::size_t>(n) + 1);
      std::memset(static_cast<void*>(out.data()), 0x55, out.size() * sizeof(R));
      const R guard = out.back();
      kernel(a.data(), a_scalar, b.data(), b_scalar, out.data(), n);
      ASSERT_EQ(std::memcmp(&guard, &out.back(), sizeof(R)), 0) << "wrote past " << n;
      int bad = 0;
      for (std::int64_t i = 0; i < n && bad < 3; ++i) {
        const E x = a[static_cast<std::size_t>(a_scalar ? 0 : i)];
        const E y = b[static_cast<std::size_t>(b_scalar ? 0 : i)];
        if (check(x, y, out[static_cast<std::size_t>(i)])) continue;
        ++bad;
        ADD_FAILURE() << "form " << form << ", " << i << " of " << n << ": of "
                      << static_cast<double>(x) << " and " << static_cast<double>(y) << " came "
                      << static_cast<double>(out[static_cast<std::size_t>(i)]);
      }
      if constexpr (sizeof(R) == sizeof(E)) {
        out.pop_back();
        const auto in_place = [&](std::vector<E> x, std::vector<E> y, bool into_a) {
          void* to = into_a ? x.data() : y.data();
          kernel(x.data(), a_scalar, y.data(), b_scalar, to, n);
          return n == 0 || std::memcmp(to, out.data(), out.size() * sizeof(R)) == 0;
        };
        if (!a_scalar || n == 1) {
          EXPECT_TRUE(in_place(a, b, true)) << "in a, form " << form << ", " << n;
        }
        if (!b_scalar || n == 1) {
          EXPECT_TRUE(in_place(a, b, false)) << "in b, form " << form << ", " << n;
        }
      }
    }
  }
}

__extension__ typedef __int128 Int128;

template <class T>
Int128 integer_quotient(T a, T b) {
  if (b == 0) return -1;
  return static_cast<Int128>(a) / static_cast<Int128>(b);
}
template <class T>
T integer_pow(T a, T b) {
  if (b < 0) return a == 1 ? T(1) : a == T(-1) && std::is_signed_v<T> ? T(b % 2 ? -1 : 1) : T(0);
  std::uint64_t result = 1, base = static_cast<std::uint64_t>(a);
  for (std::uint64_t e = static_cast<std::uint64_t>(b); e; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return static_cast<T>(result);
}

template <class T>
void check_integer_ops() {
  SCOPED_TRACE(to_string(dtype_of<T>));
  const auto check = [](BinaryOp op, auto want) {
    SCOPED_TRACE(static_cast<int>(op));
    run_all_forms<T, T>(binary_kernel(op, dtype_of<T>),
                        [&](T a, T b, T got) { return got == static_cast<T>(want(a, b)); });
  };
  using U = std::make_unsigned_t<T>;
  constexpr unsigned width = 8 * sizeof(T);
  check(BinaryOp::add, [](T a, T b) { return static_cast<Int128>(a) + b; });
  check(BinaryOp::sub, [](T a, T b) { return static_cast<Int128>(a) - b; });
  check(BinaryOp::mul, [](T a, T b) {
    return static_cast<U>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  });
  check(BinaryOp::div, [](T a, T b) { return integer_quotient(a, b); });
  check(BinaryOp::rem, [](T a, T b) {
    return b == 0 ? static_cast<Int128>(a) : static_cast<Int128>(a) % static_cast<Int128>(b);
  });
  check(BinaryOp::pow, [](T a, T b) { return integer_pow(a, b); });
  check(BinaryOp::max, [](T a, T b) { return std::max(a, b); });
  check(BinaryOp::min, [](T a, T b) { return std::min(a, b); });
  check(BinaryOp::bit_and, [](T a, T b) { return a & b; });
  check(BinaryOp::bit_or, [](T a, T b) { return a | b; });
  check(BinaryOp::bit_xor, [](T a, T b) { return a ^ b; });
  check(BinaryOp::shift_left, [](T a, T b) {
    return static_cast<U>(b) < width ? static_cast<std::uint64_t>(a) << static_cast<U>(b) : 0;
  });
  check(BinaryOp::shift_right_logical, [](T a, T b) {
    return static_cast<U>(b) < width ? static_cast<U>(a) >> static_cast<U>(b) : 0;
  });
  check(BinaryOp::shift_right_arithmetic, [](T a, T b) {
    const auto s = static_cast<std::make_signed_t<T>>(a);
    return s >> (static_cast<U>(b) < width ? static_cast<U>(b) : width - 1);
  });
  EXPECT_EQ(binary_kernel(BinaryOp::atan2, dtype_of<T>), nullptr);
}

TEST(BinaryKernels, IntegersWrapAndNeverTrap) {
  check_integer_ops<std::int8_t>();
  check_integer_ops<std::int16_t>();
  check_integer_ops<std::int32_t>();
  check_integer_ops<std::int64_t>();
  check_integer_ops<std::uint8_t>();
  check_integer_ops<std::uint16_t>();
  check_integer_ops<std::uint32_t>();
  check_integer_ops<std::uint64_t>();
}

// Divides by one number for all elements: dividends next to its multiples, of every size, and the
// extremes.
template <class T>
void check_division_by_one_number() {
  SCOPED_TRACE(to_string(dtype_of<T>));
  using U = std::make_unsigned_t<T>;
  std::mt19937_64 rng(9);
  constexpr int bits = 8 * sizeof(T);
  const auto any = [&] { return static_cast<U>(rng() >> (64 - bits + rng() % bits)); };
  std::vector<T> divisors = {0,
                             1,
                             2,
                             3,
                             5,
                             7,
                             10,
                             101,
                             std::numeric_limits<T>::max(),
                             std::numeric_limits<T>::min(),
                             static_cast<T>(-1),
                             static_cast<T>(-2),
                             static_cast<T>(-3),
                             static_cast<T>(-7)};
  for (int bit = 2; bit < bits; ++bit)
    for (int off = -1; off <= 1; ++off)
      divisors.push_back(static_cast<T>((U{1} << bit) + static_cast<U>(off)));
  for (int i = 0; i < 300; ++i)
    divisors.push_back(static_cast<T>(rng() % 2 ? any() : U{0} - any()));
  for (const T b : divisors) {
    std::vector<T> a = {0,
                        1,
                        static_cast<T>(-1),
                        std::numeric_limits<T>::max(),
                        std::numeric_limits<T>::min(),
                        b,
                        static_cast<T>(U{0} - static_cast<U>(b))};
    while (a.size() < 151) {
      const U multiple = static_cast<U>(static_cast<U>(any()) * static_cast<U>(b));
      a.push_back(static_cast<T>(any()));
      a.push_back(static_cast<T>(multiple + static_cast<U>(rng() % 3) - 1));
      // The largest multiples, next to which the quotient's error is largest.
      const U most = static_cast<U>(std::numeric_limits<T>::max());
      if (b != 0) {
        const U size = static_cast<U>(b < 0 ? U{0} - static_cast<U>(b) : static_cast<U>(b));
        a.push_back(static_cast<T>(most - most % size - rng() % 3));
      }
    }
    if constexpr (sizeof(T) == 8) {
      if (rng() % 2) {  // of numbers below 2^50, some next to that
        for (T& x : a) x = static_cast<T>(x % static_cast<T>((std::uint64_t{1} << 50) - rng() % 3));
        a.push_back(static_cast<T>((T{1} << 50) - 1));
      }
    }
    const auto n = static_cast<std::int64_t>(a.size());
    std::vector<T> q(a.size()), r(a.size());
    binary_kernel(BinaryOp::div, dtype_of<T>)(a.data(), false, &b, true, q.data(), n);
    binary_kernel(BinaryOp::rem, dtype_of<T>)(a.data(), false, &b, true, r.data(), n);
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(q[i], static_cast<T>(integer_quotient(a[i], b))) << +a[i] << " by " << +b;
      const Int128 rest =
          b == 0 ? static_cast<Int128>(a[i]) : static_cast<Int128>(a[i]) % static_cast<Int128>(b);
      ASSERT_EQ(r[i], static_cast<T>(rest)) << +a[i] << " by " << +b;
    }
  }
}

TEST(BinaryKernels, DivisionByOneNumberIsExact) {
  check_division_by_one_number<std::int8_t>();
  check_division_by_one_number<std::int16_t>();
  check_division_by_one_number<std::int32_t>();
  check_division_by_one_number<std::int64_t>();
  check_division_by_one_number<std::uint8_t>();
  check_division_by_one_number<std::uint16_t>();
  check_division_by_one_number<std::uint32_t>();
  check_division_by_one_number<std::uint64_t>();
}

// Every pair of small quotients' neighbours: division through floats must truncate exactly.
TEST(BinaryKernels, DivisionIsExactNextToWholeQuotients) {
  std::vector<std::int32_t> a, b;
  std::vector<std::uint32_t> ua, ub;
  std::mt19937_64 rng(5);
  for (int i = 0; i < 100000; ++i) {
    const auto divisor = static_cast<std::uint32_t>(rng() >> (32 + rng() % 32)) | 1;
    const auto quotient = static_cast<std::uint32_t>(rng()) / divisor;
    const std::uint32_t near = divisor * quotient + static_cast<std::uint32_t>(rng() % 3) - 1;
    ua.push_back(near);
    ub.push_back(divisor);
    a.push_back(static_cast<std::int32_t>(near));
    b.push_back(static_cast<std::int32_t>(divisor));
  }
  std::vector<std::int32_t> q(a.size());
  std::vector<std::uint32_t> uq(a.size());
  const auto n = static_cast<std::int64_t>(a.size());
  binary_kernel(BinaryOp::div, i32)(a.data(), false, b.data(), false, q.data(), n);
  binary_kernel(BinaryOp::div, u32)(ua.data(), false, ub.data(), false, uq.data(), n);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(q[i], static_cast<std::int32_t>(integer_quotient(a[i], b[i])));
    ASSERT_EQ(uq[i], ua[i] / ub[i]);
  }
  for (int x = -32768; x < 32768; x += 7) {
    for (int y = -128; y < 128; ++y) {
      const auto x16 = static_cast<std::int16_t>(x), y16 = static_cast<std::int16_t>(y * 5);
      const auto x8 = static_cast<std::int8_t>(x), y8 = static_cast<std::int8_t>(y);
      std::int16_t q16;
      std::int8_t q8;
      binary_kernel(BinaryOp::div, i16)(&x16, false, &y16, false, &q16, 1);
      binary_kernel(BinaryOp::div, i8)(&x8, false, &y8, false, &q8, 1);
      ASSERT_EQ(q16, static_cast<std::int16_t>(integer_quotient(x16, y16))) << x << " " << y * 5;
      ASSERT_EQ(q8, static_cast<std::int8_t>(integer_quotient(x8, y8)));
    }
  }
}

TEST(BinaryKernels, BoolHasLogicOnly) {
  const auto check = [](BinaryOp op, auto want) {
    run_all_forms<bool, std::uint8_t>(
        binary_kernel(op, DType::bool_),
        [&](std::uint8_t a, std::uint8_t b, std::uint8_t got) { return got == want(a, b); });
  };
  check(BinaryOp::bit_and, [](int a, int b) { return a & b; });
  check(BinaryOp::bit_or, [](int a, int b) { return a | b; });
  check(BinaryOp::bit_xor, [](int a, int b) { return a ^ b; });
  check(BinaryOp::max, [](int a, int b) { return a | b; });
  check(BinaryOp::min, [](int a, int b) { return a & b; });
  for (const BinaryOp op : {BinaryOp::add, BinaryOp::div, BinaryOp::shift_left, BinaryOp::pow})
    EXPECT_EQ(binary_kernel(op, DType::bool_), nullptr);
  EXPECT_EQ(binary_kernel(BinaryOp::add, DType::prng_key), nullptr);
  EXPECT_EQ(binary_kernel(BinaryOp::bit_and, DType::prng_key), nullptr);
}

template <class T>
void check_real_ops() {
  SCOPED_TRACE(to_string(dtype_of<T>));
  const auto check = [](BinaryOp op, double budget, auto want) {
    SCOPED_TRACE(static_cast<int>(op));
    run_all_forms<T, T>(binary_kernel(op, dtype_of<T>), [&](T a, T b, T got) {
      const long double x = to_real(a), y = to_real(b), exact = want(x, y);
      // The value is rounded to the type first: a result that is zero only in that type keeps its
      // sign.
      return ulps(got, exact) <= budget;
    });
  };
  const double rounding = kIsHalf<T> ? 0.5 : 0.5003;  // x87 rounds twice in the reference
  check(BinaryOp::add, rounding, [](long double a, long double b) { return a + b; });
  check(BinaryOp::sub, rounding, [](long double a, long double b) { return a - b; });
  check(BinaryOp::mul, rounding, [](long double a, long double b) { return a * b; });
  check(BinaryOp::div, kIsHalf<T> ? 0.5001 : rounding,
        [](long double a, long double b) { return a / b; });
  check(BinaryOp::rem, 0, [](long double a, long double b) { return std::fmod(a, b); });
  check(BinaryOp::pow, kIsHalf<T> ? 0.51 : 4,
        [](long double a, long double b) { return std::pow(a, b); });
  check(BinaryOp::atan2, kIsHalf<T> ? 0.51 : 4,
        [](long double a, long double b) { return std::atan2(a, b); });
  run_all_forms<T, T>(binary_kernel(BinaryOp::max, dtype_of<T>), [](T a, T b, T got) {
    const long double x = to_real(a), y = to_real(b), g = to_real(got);
    return std::isnan(x) || std::isnan(y) ? std::isnan(g) : g == std::max(x, y);
  });
  run_all_forms<T, T>(binary_kernel(BinaryOp::min, dtype_of<T>), [](T a, T b, T got) {
    const long double x = to_real(a), y = to_real(b), g = to_real(got);
    return std::isnan(x) || std::isnan(y) ? std::isnan(g) : g == std::min(x, y);
  });
  for (const BinaryOp op : {BinaryOp::bit_and, BinaryOp::shift_left})
    EXPECT_EQ(binary_kernel(op, dtype_of<T>), nullptr);
}

TEST(BinaryKernels, FloatsRoundOnceAndPropagateNan) {
  check_real_ops<float16>();
  check_real_ops<bfloat16>();
  check_real_ops<float>();
  check_real_ops<double>();
}

// All pairs of special values; bases of all magnitudes, and near 1, where an error of their
// logarithm is multiplied; exponents with and without a fraction.
TEST(BinaryKernels, PowOfSinglePrecisionIsWithinAnUlp) {
  std::vector<float> a, b;
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {0,      1,          2,          3,     0.5f,   1.5f,
                           1e-40f, 16777215.f, 33554432.f, 1e30f, 0.999f, 1.00001f,
                           5e7f,   3e38f,      127.f,      inf,   NAN};
  for (const float x : special)
    for (const float y : special)
      for (const float sign_x : {1.f, -1.f})
        for (const float sign_y : {1.f, -1.f}) {
          a.push_back(sign_x * x);
          b.push_back(sign_y * y);
        }
  std::mt19937_64 rng(3);
  const auto uniform = [&] { return static_cast<float>(rng() >> 40) * 0x1p-23f - 1; };
  for (int i = 0; i < 60000; ++i) {
    const auto bits = std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
    const float near_one = 1 + std::ldexp(uniform(), -static_cast<int>(rng() % 24));
    const float y = std::ldexp(uniform(), static_cast<int>(rng() % 40) - 10);
    a.push_back(i % 3 == 0 && !std::isnan(bits) ? bits : near_one);
    b.push_back(i % 4 == 0 ? std::round(y) : y);
  }
  std::vector<float> out(a.size());
  binary_kernel(BinaryOp::pow, f32)(a.data(), false, b.data(), false, out.data(),
                                    static_cast<std::int64_t>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double want = std::pow(static_cast<long double>(a[i]), b[i]);
    // If the result is zero or infinite in f32, the sign must be right.
    ASSERT_LE(ulps(out[i], want), 1) << a[i] << " to the power of " << b[i] << " is " << out[i];
  }
}

TEST(CompareKernels, CompareEveryDType) {
  for (const DType dtype : kNumericDTypes) {
    SCOPED_TRACE(to_string(dtype));
    with_type(dtype, [&]<class T>() {
      using E = Element<T>;
      const auto check = [&](CompareOp op, auto want) {
        run_all_forms<T, std::uint8_t>(compare_kernel(op, dtype), [&](E a, E b, std::uint8_t got) {
          return got == (want(to_real(a), to_real(b)) ? 1 : 0);
        });
      };
      check(CompareOp::eq, [](long double a, long double b) { return a == b; });
      check(CompareOp::ne, [](long double a, long double b) { return a != b; });
      check(CompareOp::lt, [](long double a, long double b) { return a < b; });
      check(CompareOp::le, [](long double a, long double b) { return a <= b; });
      check(CompareOp::gt, [](long double a, long double b) { return a > b; });
      check(CompareOp::ge, [](long double a, long double b) { return a >= b; });
    });
  }
  EXPECT_EQ(compare_kernel(CompareOp::eq, DType::prng_key), nullptr);
}

}  // namespace
}  // namespace shmap::cpu
