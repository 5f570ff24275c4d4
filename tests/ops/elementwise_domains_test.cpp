// Elementwise primitives take exactly the dtypes for which they have a kernel, and refuse others
// with a text.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/compare.h"
#include "core/cpu/kernels/elementwise/unary.h"
#include "core/ops/elementwise.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

bool takes(const Primitive& p, DType dtype, std::size_t operands) {
  const std::vector<ShapedArray> in(operands, ShapedArray({2}, dtype));
  ShapedArray out;
  try {
    p.abstract_eval(in, no_params, std::span(&out, 1));
    return true;
  } catch (const TypeError&) {
    return false;
  }
}

template <class F>
void each_dtype(const Primitive& p, std::size_t operands, F has_kernel) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    EXPECT_EQ(takes(p, dtype, operands), has_kernel(dtype)) << p.name << " of " << dtype;
  }
}

TEST(Domains, AreTheKernels) {
  zeros({1});  // the library has started
#define SHMAP_CHECK(name, domain, ...) \
  each_dtype(name##_p, 1, [](DType t) { return cpu::unary_kernel(UnaryOp::name, t) != nullptr; });
  SHMAP_UNARY_OPS(SHMAP_CHECK)
  SHMAP_PREDICATE_OPS(SHMAP_CHECK)
#undef SHMAP_CHECK
#define SHMAP_CHECK(name, domain, ...) \
  each_dtype(name##_p, 2, [](DType t) { return cpu::binary_kernel(BinaryOp::name, t) != nullptr; });
  SHMAP_BINARY_OPS(SHMAP_CHECK)
#undef SHMAP_CHECK
#define SHMAP_CHECK(name, domain, ...) \
  each_dtype(name##_p, 2,              \
             [](DType t) { return cpu::compare_kernel(CompareOp::name, t) != nullptr; });
  SHMAP_COMPARE_OPS(SHMAP_CHECK)
#undef SHMAP_CHECK
}

TEST(Domains, OthersAreTypeErrors) {
  const Array b = ones({2}, bool_), i = ones({2}, i32), f = ones({2});
  const char* here = "elementwise_domains_test.cpp";
  expect_error<TypeError>([&] { sign(b); }, {"sign", "bool", "astype", here});
  expect_error<TypeError>([&] { square(b); }, {"square", "bool", "integers or floats", here});
  expect_error<TypeError>([&] { b - b; }, {"sub", "bool", here});
  expect_error<TypeError>([&] { -b; }, {"neg", "bool", "~x", here});
  expect_error<TypeError>([&] { b % b; }, {"remainder", "bool", here});
  expect_error<TypeError>([&] { floor_divide(b, b); }, {"floor_divide", "bool", here});
  expect_error<TypeError>([&] { pow(b, b); }, {"pow", "bool", here});
  expect_error<TypeError>([&] { f& f; }, {"bitwise_and", "f32", "integers", here});
  expect_error<TypeError>([&] { i << f; }, {"left_shift", "f32", here});
  expect_error<TypeError>([&] { b << b; }, {"left_shift", "bool", here});
  expect_error<TypeError>([&] { ~f; }, {"bitwise_not", "f32", here});
  expect_error<TypeError>([&] { select(i, f, f); }, {"select", "i32", "bool", here});
}

TEST(Domains, BoolsAddAsOrAndMultiplyAsAnd) {
  const Array a = array<bool>({false, false, true, true}, {4});
  const Array b = array<bool>({false, true, false, true}, {4});
  EXPECT_EQ((a + b).to_vector<bool>(), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ((a * b).to_vector<bool>(), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ((a / b).dtype(), f32);
  EXPECT_EQ((a + 1).dtype(), i32);
}

// Host scalars that an integer dtype cannot hold are treated as in NumPy 2.
TEST(HostScalars, OutOfBoundsAreErrors) {
  const Array u = array<std::uint8_t>({1, 2}, {2}), i = array<std::int32_t>({1, 2}, {2});
  const char* here = "elementwise_domains_test.cpp";
  const auto refused = [&](auto f) {
    expect_error<ValueError>([&] { f(u); }, {"300", "u8", "0 to 255", "astype", here});
    expect_error<ValueError>([&] { jit(f)(u); }, {"300", "u8", "0 to 255", here});
    expect_error<ValueError>([&] { make_jaxpr(f)(u); }, {"300", "u8", here});
    expect_error<ValueError>([&] { vmap(f)(u); }, {"300", "u8", here});
  };
  refused([](Array x) { return x + 300; });
  refused([](Array x) { return 300 - x; });
  refused([](Array x) { return x * 300; });
  refused([](Array x) { return x % 300; });
  refused([](Array x) { return x & 300; });
  refused([](Array x) { return x << 300; });
  refused([](Array x) { return floor_divide(x, 300); });
  refused([](Array x) { return maximum(x, 300); });
  refused([](Array x) { return clip(x, 0, 300); });
  refused([](Array x) { return pow(x, 300); });
  refused([](Array x) { return where(x == x, x, 300); });
  refused([](Array x) { return full_like(x, 300); });
  refused([](Array x) { return x + full({}, 300, u8); });
  expect_error<ValueError>([&] { full({2}, 300, u8); }, {"full", "300", "u8", here});
  expect_error<ValueError>([&] { u + -1; }, {"add", "-1", "u8"});
  expect_error<ValueError>([&] { i + 5000000000; },
                           {"add", "5000000000", "i32", "-2147483648 to 2147483647"});
  expect_error<ValueError>([&] { ones({2}, u64) - 1 * -1; },
                           {"sub", "-1", "u64", "0 to 18446744073709551615"});
  expect_error<ValueError>([&] { ones({2}, i64) + std::uint64_t{1} * (std::uint64_t{1} << 63); },
                           {"9223372036854775808", "i64"});
  expect_error<ValueError>([&] { pad(u, {{1, 1}}, 300); }, {"pad", "300", "u8"});
  // A failed += leaves the array as it was.
  Array kept = array<std::uint8_t>({1, 2}, {2});
  expect_error<ValueError>([&] { kept += 300; }, {"300", "u8"});
  EXPECT_EQ(kept.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 2}));
  // A carry takes the dtype of the body.
  const auto summed = [](Array xs) {
    return scan([](Array, Array x) { return std::pair{x, x}; }, 300, xs).first;
  };
  expect_error<ValueError>([&] { jit(summed)(u); }, {"300", "u8", here});
}

TEST(HostScalars, ThatFitKeepTheirMeaning) {
  const Array u = array<std::uint8_t>({1, 250}, {2});
  EXPECT_EQ((u + 255).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 249}));
  EXPECT_EQ((u + astype(300, u8)).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{45, 38}));
  EXPECT_EQ((ones({2}, bool_) + 300).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{301, 301}));
  EXPECT_EQ((ones({1}, i8) + -128).item<std::int8_t>(), -127);
  EXPECT_EQ((u + 300.f).dtype(), f32);
  // A number is rounded to a half type once, as an array's elements are.
  for (const double x : {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40, -1 - 0x1p-8 - 0x1p-40, 1e-9,
                         65520 - 0x1p-20, 3.4e38, 1e300}) {
    for (const DType half : {f16, bf16}) {
      EXPECT_EQ(astype(full({1}, x, half), f32).item<float>(),
                astype(astype(full({1}, x, f64), half), f32).item<float>())
          << x << " as " << half;
    }
  }
  EXPECT_EQ(astype(ones({1}, f16) + 70000.f, f32).item<float>(),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(astype(ones({1}, f16) + 70000, f32).item<float>(),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ((ones({1}, u64) + (std::uint64_t{1} << 63)).item<std::uint64_t>(),
            (std::uint64_t{1} << 63) + 1);
}

// Scalars compare as numbers: the array's dtype does not bound them.
TEST(HostScalars, OutOfBoundsCompareAsNumbers) {
  const auto check = [](Array x, auto beyond, bool above) {
    const auto all_are = [&](auto f, bool want) {
      for (const Array& y : {f(x), jit(f)(x), vmap(f)(x)})
        EXPECT_EQ(y.to_vector<bool>(), std::vector<bool>(2, want)) << beyond;
    };
    all_are([=](Array a) { return a < beyond; }, above);
    all_are([=](Array a) { return a <= beyond; }, above);
    all_are([=](Array a) { return a > beyond; }, !above);
    all_are([=](Array a) { return a >= beyond; }, !above);
    all_are([=](Array a) { return beyond < a; }, !above);
    all_are([=](Array a) { return beyond <= a; }, !above);
    all_are([=](Array a) { return beyond > a; }, above);
    all_are([=](Array a) { return beyond >= a; }, above);
    all_are([=](Array a) { return a == beyond; }, false);
    all_are([=](Array a) { return beyond != a; }, true);
  };
  check(array<std::uint8_t>({0, 255}, {2}), 300, true);
  check(array<std::uint8_t>({0, 255}, {2}), -1, false);
  check(array<std::int8_t>({-128, 127}, {2}), 128, true);
  check(array<std::int8_t>({-128, 127}, {2}), -129, false);
  check(array<std::int32_t>({INT32_MIN, INT32_MAX}, {2}), 5000000000, true);
  check(array<std::int32_t>({INT32_MIN, INT32_MAX}, {2}), -5000000000, false);
  check(array<std::int64_t>({INT64_MIN, INT64_MAX}, {2}), UINT64_MAX, true);
  check(array<std::uint64_t>({0, UINT64_MAX}, {2}), -1, false);
  EXPECT_EQ((array<std::uint8_t>({1, 2}, {2}) == 2).to_vector<bool>(),
            (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace shmap
