#include "core/cpu/kernels/elementwise/cast.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/cpu/kernels/kernel_testing.h"

namespace shmap::cpu {
namespace {

using namespace testing;

template <class From, class To>
Element<To> reference(Element<From> x) {
  const long double real = to_real(x);
  if constexpr (std::is_same_v<To, bool>) {
    return real != 0;
  } else if constexpr (kIsHalf<To>) {
    // There is one rounding: f32 holds exactly every integer and half type that rounds to a finite
    // f16; only f64 needs the reference's own rounding, below.
    return static_cast<To>(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else if constexpr (kIsReal<From>) {
    if (std::isnan(real)) return 0;
    if (real <= static_cast<long double>(std::numeric_limits<To>::min()))
      return std::numeric_limits<To>::min();
    if (real >= static_cast<long double>(std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
    return static_cast<To>(real);
  } else {
    return static_cast<To>(x);
  }
}

// f64 to a half type by hand: the candidates on both sides, the nearer one, the even one of a tie.
template <class To>
To round_once(double x) {
  const To guess = static_cast<To>(static_cast<float>(x));
  if (std::isnan(x)) return guess;
  To best = guess;
  for (int step = -1; step <= 1; ++step) {
    const To candidate = std::bit_cast<To>(static_cast<std::uint16_t>(guess.bits + step));
    const double value = static_cast<float>(candidate), kept = static_cast<float>(best);
    if (!std::isfinite(value) || std::signbit(value) != std::signbit(x)) continue;
    if (!std::isfinite(kept)) continue;
    const double far = std::fabs(value - x), near = std::fabs(kept - x);
    if (far < near || (far == near && candidate.bits % 2 == 0)) best = candidate;
  }
  return best;
}

template <class From, class To>
void check_cast() {
  SCOPED_TRACE(to_string(dtype_of<From>) + " to " + to_string(dtype_of<To>));
  const CastFn kernel = cast_kernel(dtype_of<From>, dtype_of<To>);
  ASSERT_NE(kernel, nullptr);
  using A = Element<From>;
  using B = Element<To>;
  const auto in = elements<From>(1100, 11);
  const auto equal = [](B got, B want) {
    const long double g = to_real(got), w = to_real(want);
    return std::isnan(w) ? std::isnan(g) : g == w && std::signbit(g) == std::signbit(w);
  };
  for (const std::int64_t n : kSizes) {
    std::vector<B> out(static_cast<std::size_t>(n) + 1);
    std::memset(static_cast<void*>(out.data()), 0x55, out.size() * sizeof(B));
    const B guard = out.back();
    kernel(in.data(), out.data(), n);
    ASSERT_EQ(std::memcmp(&guard, &out.back(), sizeof(B)), 0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      B want = reference<From, To>(in[i]);
      if constexpr (std::is_same_v<From, double> && kIsHalf<To>) want = round_once<To>(in[i]);
      ASSERT_TRUE(equal(out[i], want))
          << i << " of " << n << ": " << static_cast<double>(to_real(in[i])) << " became "
          << static_cast<double>(to_real(out[i])) << ", not " << static_cast<double>(to_real(want));
    }
    if constexpr (sizeof(A) == sizeof(B)) {
      std::vector<A> same(in.begin(), in.begin() + n);
      kernel(same.data(), same.data(), n);
      EXPECT_TRUE(n == 0 || std::memcmp(same.data(), out.data(), same.size() * sizeof(A)) == 0);
    }
  }
}

TEST(CastKernels, EveryPairOfDTypes) {
  for (const DType from : kNumericDTypes) {
    for (const DType to : kNumericDTypes) {
      with_type(from,
                [&]<class From>() { with_type(to, [&]<class To>() { check_cast<From, To>(); }); });
    }
    EXPECT_EQ(cast_kernel(from, DType::prng_key), nullptr);
    EXPECT_EQ(cast_kernel(DType::prng_key, from), nullptr);
  }
}

// Every integer and half that is at most 70,000 from zero: past the limits of both 8 and 16 bits.
TEST(CastKernels, FloatsBeyondTheLimitsOfShortIntegersBecomeTheLimits) {
  std::vector<float> in;
  for (int twice = -140'000; twice <= 140'000; ++twice) in.push_back(float(twice) / 2);
  const auto check = [&]<class To>(To) {
    std::vector<To> out(in.size());
    cast_kernel(f32, dtype_of<To>)(in.data(), out.data(), std::int64_t(in.size()));
    for (std::size_t i = 0; i < in.size(); ++i)
      ASSERT_EQ(out[i], (reference<float, To>(in[i]))) << in[i] << " to " << dtype_of<To>;
  };
  check(std::int8_t{});
  check(std::uint8_t{});
  check(std::int16_t{});
  check(std::uint16_t{});
}

// Every f16 and bf16 widens exactly and comes back; every f32 at a stride rounds as the scalar
// conversions do.
TEST(CastKernels, HalfTypesAgreeWithTheScalarConversions) {
  std::vector<std::uint16_t> bits(65536), back(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(65536);
  for (const DType half : {f16, bf16}) {
    cast_kernel(half, f32)(bits.data(), wide.data(), 65536);
    cast_kernel(f32, half)(wide.data(), back.data(), 65536);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float want = half == f16 ? half_bits_to_float(bits[i]) : bfloat_bits_to_float(bits[i]);
      if (want != want) {
        ASSERT_NE(wide[i], wide[i]);
        continue;
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(want));
      ASSERT_EQ(back[i], bits[i]);
    }
  }
  std::vector<float> in;
  for (std::uint64_t b = 0; b < (1ull << 32); b += 30011)
    in.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(b)));
  std::vector<std::uint16_t> h(in.size()), b(in.size());
  const auto n = static_cast<std::int64_t>(in.size());
  cast_kernel(f32, f16)(in.data(), h.data(), n);
  cast_kernel(f32, bf16)(in.data(), b.data(), n);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] != in[i]) continue;
    ASSERT_EQ(h[i], float_to_half_bits(in[i])) << in[i];
    ASSERT_EQ(b[i], float_to_bfloat_bits(in[i])) << in[i];
  }
}

TEST(CastKernels, F64RoundsToHalfTypesOnce) {
  // Just above the middle of two neighbours, by less than f32 can hold: two roundings go down.
  const double in[] = {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40};
  std::uint16_t out[2];
  cast_kernel(f64, f16)(in, out, 1);
  EXPECT_EQ(half_bits_to_float(out[0]), 1 + 0x1p-10f);
  cast_kernel(f64, bf16)(in + 1, out + 1, 1);
  EXPECT_EQ(bfloat_bits_to_float(out[1]), 1 + 0x1p-7f);
}

}  // namespace
}  // namespace shmap::cpu
