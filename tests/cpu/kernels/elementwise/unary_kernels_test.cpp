#include <algorithm>
#include <bit>
#include <cmath>

#include "core/cpu/kernels/elementwise/unary.h"
#include "tests/cpu/kernels/kernel_testing.h"

namespace shmap::cpu {
namespace {

using namespace testing;
using Exact = long double (*)(long double);

long double erf_inv(long double x) {
  const long double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(HUGE_VALL, x) : std::nanl("");
  if (x == 0) return x;
  // Starts from two correct digits and applies Newton's steps to erf, or to erfc where erf has lost
  // its digits.
  const long double w = -std::log((1 - a) * (1 + a)), k = 2 / (3.14159265358979323846L * 0.147L);
  long double y = std::sqrt(std::sqrt((k - w / 2) * (k - w / 2) + w / 0.147L) - (k - w / 2));
  if (w < 1e-4L) y = a * 0.88622692545275801365L;
  for (int step = 0; step < 12; ++step) {
    const long double error = a > 0.5L ? (1 - a) - std::erfc(y) : std::erf(y) - a;
    y -= error / (1.12837916709551257390L * std::exp(-y * y));
  }
  return std::copysign(y, x);
}

struct RealOp {
  UnaryOp op;
  const char* name;
  Exact exact;
  double ulp;       // f32 and f64
  double half_ulp;  // f16 and bf16: one rounding of an f32
};
const RealOp kRealOps[] = {
    {UnaryOp::neg, "neg", [](long double x) { return -x; }, 0, 0},
    {UnaryOp::abs, "abs", [](long double x) { return std::fabs(x); }, 0, 0},
    {UnaryOp::sign, "sign", [](long double x) { return x > 0   ? 1.0L
                                                       : x < 0 ? -1.0L
                                                               : x; }, 0, 0},
    {UnaryOp::floor, "floor", [](long double x) { return std::floor(x); }, 0, 0},
    {UnaryOp::ceil, "ceil", [](long double x) { return std::ceil(x); }, 0, 0},
    {UnaryOp::round, "round", [](long double x) { return std::nearbyint(x); }, 0, 0},
    {UnaryOp::exp, "exp", [](long double x) { return std::exp(x); }, 1, 0.51},
    {UnaryOp::exp2, "exp2", [](long double x) { return std::exp2(x); }, 4, 0.51},
    {UnaryOp::expm1, "expm1", [](long double x) { return std::expm1(x); }, 4, 0.51},
    {UnaryOp::log, "log", [](long double x) { return std::log(x); }, 4, 0.51},
    {UnaryOp::log1p, "log1p", [](long double x) { return std::log1p(x); }, 4, 0.51},
    {UnaryOp::sin, "sin", [](long double x) { return std::sin(x); }, 4, 0.51},
    {UnaryOp::cos, "cos", [](long double x) { return std::cos(x); }, 4, 0.51},
    {UnaryOp::tan, "tan", [](long double x) { return std::tan(x); }, 4, 0.51},
    {UnaryOp::tanh, "tanh", [](long double x) { return std::tanh(x); }, 2.5, 0.51},
    {UnaryOp::asin, "asin", [](long double x) { return std::asin(x); }, 4, 0.51},
    {UnaryOp::acos, "acos", [](long double x) { return std::acos(x); }, 4, 0.51},
    {UnaryOp::atan, "atan", [](long double x) { return std::atan(x); }, 4, 0.51},
    {UnaryOp::sinh, "sinh", [](long double x) { return std::sinh(x); }, 4, 0.51},
    {UnaryOp::cosh, "cosh", [](long double x) { return std::cosh(x); }, 4, 0.51},
    {UnaryOp::asinh, "asinh", [](long double x) { return std::asinh(x); }, 4, 0.51},
    {UnaryOp::acosh, "acosh", [](long double x) { return std::acosh(x); }, 4, 0.51},
    {UnaryOp::atanh, "atanh", [](long double x) { return std::atanh(x); }, 4, 0.51},
    {UnaryOp::sqrt, "sqrt", [](long double x) { return std::sqrt(x); }, 0.5001, 0.51},
    {UnaryOp::rsqrt, "rsqrt", [](long double x) { return 1 / std::sqrt(x); }, 1.5, 0.51},
    {UnaryOp::cbrt, "cbrt", [](long double x) { return std::cbrt(x); }, 4, 0.51},
    {UnaryOp::logistic, "logistic",
     [](long double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); },
     5, 0.51},
    {UnaryOp::erf, "erf", [](long double x) { return std::erf(x); }, 4.01, 0.51},
    {UnaryOp::erfc, "erfc", [](long double x) { return std::erfc(x); }, 4, 0.51},
    {UnaryOp::erf_inv, "erf_inv", erf_inv, 8, 0.53},
    {UnaryOp::square, "square", [](long double x) { return x * x; }, 0.5001, 0.51},
};

template <class T>
void check_real(const RealOp& op) {
  SCOPED_TRACE(std::string(op.name) + " of " + to_string(dtype_of<T>));
  const UnaryFn kernel = unary_kernel(op.op, dtype_of<T>);
  ASSERT_NE(kernel, nullptr);
  const double budget = kIsHalf<T> ? op.half_ulp : op.ulp;
  const auto in = values<T>(30000, 7);
  std::vector<T> out(in.size());
  kernel(in.data(), out.data(), static_cast<std::int64_t>(in.size()));
  int bad = 0;
  for (std::size_t i = 0; i < in.size() && bad < 5; ++i) {
    const long double want = op.exact(to_real(in[i]));
    const double error = ulps(out[i], want);
    if (error <= budget) continue;
    // A function with an error of 4 ulp may give the largest finite number instead of infinity.
    ADD_FAILURE() << "of " << static_cast<double>(to_real(in[i])) << ": "
                  << static_cast<double>(to_real(out[i])) << " is " << error << " ulp from "
                  << static_cast<double>(want);
    ++bad;
  }
  // Neither the size, nor the position, nor writing in place changes a result.
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t offset : {0, 1, 5}) {
      const auto begin = in.begin() + offset;
      std::vector<T> part(begin, begin + n), want(out.begin() + offset, out.begin() + offset + n);
      std::vector<T> apart(part.size() + 1, T(-7.f));
      kernel(part.data(), apart.data(), n);
      EXPECT_EQ(static_cast<float>(apart.back()), -7.f) << "wrote past " << n;
      apart.pop_back();
      kernel(part.data(), part.data(), n);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto k = static_cast<std::size_t>(i);
        if (to_real(want[k]) != to_real(want[k])) continue;  // a NaN's bits are free
        ASSERT_EQ(to_real(part[k]), to_real(want[k])) << "in place, " << i << " of " << n;
        ASSERT_EQ(to_real(apart[k]), to_real(want[k])) << i << " of " << n;
      }
    }
  }
}

class RealUnary : public ::testing::TestWithParam<int> {};
TEST_P(RealUnary, IsAccurateForSpecialAndRandomValues) {
  const RealOp& op = kRealOps[GetParam()];
  check_real<float16>(op);
  check_real<bfloat16>(op);
  check_real<float>(op);
  check_real<double>(op);
}
INSTANTIATE_TEST_SUITE_P(Ops, RealUnary, ::testing::Range(0, static_cast<int>(std::size(kRealOps))),
                         [](const auto& info) { return std::string(kRealOps[info.param].name); });

// All magnitudes of f32 up to 1, and more densely near 1, where the result depends on the logarithm
// of 1 - x^2 alone.
TEST(UnaryKernels, ErfInvIsAccurateUpToOne) {
  std::vector<float> in;
  for (std::uint32_t bits = 0x00800000u; bits < 0x3f800000u; bits += 20011)
    in.push_back(std::bit_cast<float>(bits));
  for (std::uint32_t bits = 0x3f000000u; bits < 0x3f800000u; bits += 251)
    in.push_back(-std::bit_cast<float>(bits));
  for (std::uint32_t below = 1; below < 2000; ++below)
    in.push_back(std::bit_cast<float>(0x3f800000u - below));
  std::vector<float> out(in.size());
  unary_kernel(UnaryOp::erf_inv, f32)(in.data(), out.data(), static_cast<std::int64_t>(in.size()));
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) worst = std::max(worst, ulps(out[i], erf_inv(in[i])));
  EXPECT_LE(worst, 4);
}

// All magnitudes of f32, at a step that is not a power of two, as arguments of each function.
TEST(UnaryKernels, SinAndCosReduceHugeArguments) {
  for (const UnaryOp op : {UnaryOp::sin, UnaryOp::cos}) {
    std::vector<float> in;
    for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += 10007)
      in.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    std::vector<float> out(in.size());
    unary_kernel(op, f32)(in.data(), out.data(), static_cast<std::int64_t>(in.size()));
    double worst = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const long double x = in[i];
      worst = std::max(worst, ulps(out[i], op == UnaryOp::sin ? std::sin(x) : std::cos(x)));
    }
    EXPECT_LE(worst, 4);
  }
}

// All magnitudes of f32, and the ends of the pieces from both sides.
TEST(UnaryKernels, ErfIsAccurateInEachPieceAndOneBeyond) {
  std::vector<float> in;
  for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += 10007)
    in.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (float x = 0; x <= 5; x += 0.125f) {
    in.push_back(x);
    in.push_back(std::nextafter(x, 10.f));
    in.push_back(std::nextafter(x, -10.f));
  }
  const std::size_t n = in.size();
  for (std::size_t i = 0; i < n; ++i) in.push_back(-in[i]);
  std::vector<float> out(in.size());
  unary_kernel(UnaryOp::erf, f32)(in.data(), out.data(), static_cast<std::int64_t>(in.size()));
  const double most = __builtin_cpu_supports("avx512f") ? 2 : 4.01;
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_LE(ulps(out[i], std::erf(static_cast<long double>(in[i]))), most) << in[i];
    ASSERT_LE(std::fabs(out[i]), 1) << in[i];
    if (std::fabs(in[i]) >= 4) {
      ASSERT_EQ(std::fabs(out[i]), 1) << in[i];
    }
  }
}

// Around where the exponential becomes subnormal and then 0, alone and among other elements.
template <class T>
void check_vanishing_exp(T from, T to, T zero) {
  std::vector<T> in;
  for (T x = from; x > to; x -= T(0.0137)) {
    in.push_back(x);
    if (in.size() % 5 == 0) in.push_back(-x / 64);
    if (in.size() % 7 == 0) in.push_back(-std::numeric_limits<T>::infinity());
    if (in.size() % 11 == 0) in.push_back(T(-1e30));
  }
  std::vector<T> out(in.size());
  unary_kernel(UnaryOp::exp, dtype_of<T>)(in.data(), out.data(), std::int64_t(in.size()));
  for (std::size_t i = 0; i < in.size(); ++i) {
    const long double want = std::exp(static_cast<long double>(in[i]));
    ASSERT_LE(ulps(out[i], want), 4) << "of " << in[i];
    if (in[i] < zero) {
      ASSERT_EQ(out[i], T(0)) << "of " << in[i];
    }
  }
}
TEST(UnaryKernels, TheExponentialOfWhatVanishesIsZero) {
  check_vanishing_exp<float>(-80, -130, -104);
  check_vanishing_exp<double>(-700, -760, -745.2);
}

template <class T>
void check_integers() {
  SCOPED_TRACE(to_string(dtype_of<T>));
  using U = std::make_unsigned_t<T>;
  const auto in = values<T>(2000, 3);
  const auto check = [&](UnaryOp op, auto want) {
    const UnaryFn kernel = unary_kernel(op, dtype_of<T>);
    ASSERT_NE(kernel, nullptr);
    for (const std::int64_t n : kSizes) {
      std::vector<T> part(in.begin(), in.begin() + n), out(part.size() + 1, T{77});
      kernel(part.data(), out.data(), n);
      EXPECT_EQ(out.back(), T{77});
      kernel(part.data(), part.data(), n);
      for (std::size_t i = 0; i < part.size(); ++i) {
        ASSERT_EQ(out[i], static_cast<T>(want(in[i]))) << "of " << +in[i];
        ASSERT_EQ(part[i], out[i]);
      }
    }
  };
  check(UnaryOp::neg, [](T x) { return static_cast<U>(-static_cast<std::uint64_t>(x)); });
  check(UnaryOp::abs, [](T x) {
    return static_cast<U>(x < 0 ? -static_cast<std::uint64_t>(x) : static_cast<std::uint64_t>(x));
  });
  check(UnaryOp::sign, [](T x) { return x > 0 ? 1 : x < 0 ? -1 : 0; });
  check(UnaryOp::square, [](T x) {
    return static_cast<U>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(x));
  });
  check(UnaryOp::not_, [](T x) { return ~x; });
  check(UnaryOp::population_count, [](T x) { return std::popcount(static_cast<U>(x)); });
  check(UnaryOp::clz, [](T x) { return std::countl_zero(static_cast<U>(x)); });
  for (const UnaryOp op : {UnaryOp::sin, UnaryOp::floor, UnaryOp::sqrt, UnaryOp::is_finite})
    EXPECT_EQ(unary_kernel(op, dtype_of<T>), nullptr);
}

TEST(UnaryKernels, IntegersWrap) {
  check_integers<std::int8_t>();
  check_integers<std::int16_t>();
  check_integers<std::int32_t>();
  check_integers<std::int64_t>();
  check_integers<std::uint8_t>();
  check_integers<std::uint16_t>();
  check_integers<std::uint32_t>();
  check_integers<std::uint64_t>();
}

TEST(UnaryKernels, NotOfBoolIsLogical) {
  const auto in = elements<bool>(100, 1);
  std::vector<std::uint8_t> out(in.size());
  unary_kernel(UnaryOp::not_, DType::bool_)(in.data(), out.data(), 100);
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], in[i] ? 0 : 1);
  EXPECT_EQ(unary_kernel(UnaryOp::neg, DType::bool_), nullptr);
  EXPECT_EQ(unary_kernel(UnaryOp::neg, DType::prng_key), nullptr);
}

template <class T>
void check_tests() {
  SCOPED_TRACE(to_string(dtype_of<T>));
  const auto in = values<T>(1030, 5);
  for (const std::int64_t n : kSizes) {
    std::vector<std::uint8_t> finite(static_cast<std::size_t>(n) + 1, 9);
    unary_kernel(UnaryOp::is_finite, dtype_of<T>)(in.data(), finite.data(), n);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const long double x = to_real(in[i]);
      EXPECT_EQ(finite[i], std::isfinite(x) ? 1 : 0);
    }
    EXPECT_EQ(finite.back(), 9);
  }
}

TEST(UnaryKernels, ClassifyFloats) {
  check_tests<float16>();
  check_tests<bfloat16>();
  check_tests<float>();
  check_tests<double>();
}

}  // namespace
}  // namespace shmap::cpu
