// Which dtypes elementwise primitives take: exactly those that they have a kernel for; and what is
// said of the others.
#include <gtest/gtest.h>

#include "core/cpu/kernels/binary.h"
#include "core/cpu/kernels/compare.h"
#include "core/cpu/kernels/unary.h"
#include "core/ops/elementwise.h"
#include "shmap/ops.h"
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
#define SHMAP_CHECK(name, domain) \
  each_dtype(name##_p, 1,         \
             [](DType t) { return cpu::unary_kernel(cpu::UnaryOp::name, t) != nullptr; });
  SHMAP_UNARY_PRIMITIVES(SHMAP_CHECK)
  SHMAP_PREDICATE_PRIMITIVES(SHMAP_CHECK)
#undef SHMAP_CHECK
#define SHMAP_CHECK(name, domain) \
  each_dtype(name##_p, 2,         \
             [](DType t) { return cpu::binary_kernel(cpu::BinaryOp::name, t) != nullptr; });
  SHMAP_BINARY_PRIMITIVES(SHMAP_CHECK)
#undef SHMAP_CHECK
#define SHMAP_CHECK(name, domain) \
  each_dtype(name##_p, 2,         \
             [](DType t) { return cpu::compare_kernel(cpu::CompareOp::name, t) != nullptr; });
  SHMAP_COMPARE_PRIMITIVES(SHMAP_CHECK)
#undef SHMAP_CHECK
}

TEST(Domains, OthersAreTypeErrors) {
  const Array b = ones({2}, bool_), i = ones({2}, i32), f = ones({2});
  const char* here = "elementwise_domains_test.cpp";
  expect_error<TypeError>([&] { sign(b); }, {"sign", "bool", "astype", here});
  expect_error<TypeError>([&] { square(b); }, {"square", "bool", "integer or float", here});
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

}  // namespace
}  // namespace shmap
