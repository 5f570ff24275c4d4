// The elementwise CPU kernels compared with JAX's values, one kernel at a time: if a golden test of
// an op fails and these pass, the fault is above the kernels.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/elementwise/compare.h"
#include "core/cpu/kernels/elementwise/unary.h"
#include "tests/support/golden.h"

namespace shmap {
namespace {

using testing::golden_diff;
using testing::GoldenArray;
using testing::GoldenCase;

DType dtype_named(const std::string& name) {
  for (int t = 0; t < kDTypeCount; ++t)
    if (name == short_name(static_cast<DType>(t))) return static_cast<DType>(t);
  throw std::invalid_argument("no dtype is called " + name);
}

int ulp(const GoldenCase& c) { return static_cast<int>(c.params.integer("ulp")); }

// x broadcast to `shape`, whose rank is x's: (n, 1) and (1, n) to (n, n).
std::vector<std::byte> broadcast(const GoldenArray& x, const Shape& shape) {
  const auto size = static_cast<std::size_t>(itemsize(x.dtype));
  std::vector<std::byte> out;
  for (std::int64_t r = 0; r < shape[0]; ++r) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      const std::int64_t at = (x.shape[0] == 1 ? 0 : r) * x.shape[1] + (x.shape[1] == 1 ? 0 : c);
      const std::byte* from = x.bytes.data() + static_cast<std::size_t>(at) * size;
      out.insert(out.end(), from, from + size);
    }
  }
  return out;
}

TEST(GoldenKernels, Unary) {
  std::map<std::string, UnaryOp> ops = {
      {"negative", UnaryOp::neg},
      {"bitwise_not", UnaryOp::not_},
      {"isfinite", UnaryOp::is_finite},
  };
#define SHMAP_NAMED(name, ...) ops.emplace(#name, UnaryOp::name);
  SHMAP_UNARY_OPS(SHMAP_NAMED)
#undef SHMAP_NAMED
  int count = 0;
  for (const GoldenCase& c : testing::load_golden("ops_elementwise")) {
    const auto op = ops.find(c.params.text("op"));
    if (op == ops.end() || c.inputs.size() != 1) continue;
    const GoldenArray &x = c.inputs[0], &want = c.outputs[0];
    const cpu::UnaryFn kernel = cpu::unary_kernel(op->second, x.dtype);
    if (kernel == nullptr) {  // integers of functions of floats, which are cast first
      EXPECT_FALSE(is_floating(x.dtype)) << c.name;
      continue;
    }
    std::vector<std::byte> out(want.bytes.size());
    kernel(x.bytes.data(), out.data(), x.shape.num_elements());
    EXPECT_EQ(golden_diff(want, out.data(), want.dtype, x.shape, ulp(c)), "") << c.name;
    ++count;
  }
  EXPECT_GT(count, 100);
}

TEST(GoldenKernels, BinaryAndComparisons) {
  const std::map<std::string, BinaryOp> ops = {
      {"add", BinaryOp::add},
      {"subtract", BinaryOp::sub},
      {"multiply", BinaryOp::mul},
      {"divide", BinaryOp::div},
      {"pow", BinaryOp::pow},
      {"maximum", BinaryOp::max},
      {"minimum", BinaryOp::min},
      {"atan2", BinaryOp::atan2},
      {"bitwise_and", BinaryOp::bit_and},
      {"bitwise_or", BinaryOp::bit_or},
      {"bitwise_xor", BinaryOp::bit_xor},
      {"left_shift", BinaryOp::shift_left},
  };
  const std::map<std::string, CompareOp> comparisons = {
      {"equal", CompareOp::eq},      {"not_equal", CompareOp::ne}, {"less", CompareOp::lt},
      {"less_equal", CompareOp::le}, {"greater", CompareOp::gt},   {"greater_equal", CompareOp::ge},
  };
  int count = 0;
  for (const GoldenCase& c : testing::load_golden("ops_elementwise")) {
    const std::string name = c.params.text("op");
    if (c.inputs.size() != 2 || c.inputs[0].shape.rank() != 2) continue;
    const GoldenArray &x = c.inputs[0], &y = c.inputs[1], &want = c.outputs[0];
    cpu::BinaryFn kernel = nullptr;
    if (const auto op = comparisons.find(name); op != comparisons.end()) {
      kernel = cpu::compare_kernel(op->second, x.dtype);
    } else if (const auto other = ops.find(name); other != ops.end()) {
      if (want.dtype != x.dtype) continue;  // the quotient of integers is one of floats
      kernel = cpu::binary_kernel(other->second, x.dtype);
    } else if (name == "right_shift") {
      kernel = cpu::binary_kernel(
          is_signed_int(x.dtype) ? BinaryOp::shift_right_arithmetic : BinaryOp::shift_right_logical,
          x.dtype);
    } else {
      continue;
    }
    if (kernel == nullptr) {
      EXPECT_EQ(x.dtype, DType::bool_) << c.name;  // sums and products of bools are or and and
      continue;
    }
    const std::vector<std::byte> a = broadcast(x, want.shape), b = broadcast(y, want.shape);
    std::vector<std::byte> out(want.bytes.size());
    kernel(a.data(), false, b.data(), false, out.data(), want.shape.num_elements());
    EXPECT_EQ(golden_diff(want, out.data(), want.dtype, want.shape, ulp(c)), "") << c.name;
    ++count;
  }
  EXPECT_GT(count, 100);
}

TEST(GoldenKernels, Casts) {
  int count = 0;
  for (const GoldenCase& c : testing::load_golden("ops_shape")) {
    if (c.params.text("op") != "astype") continue;
    const GoldenArray &x = c.inputs[0], &want = c.outputs[0];
    const cpu::CastFn kernel = cpu::cast_kernel(x.dtype, dtype_named(c.params.text("dtype")));
    ASSERT_NE(kernel, nullptr) << c.name;
    std::vector<std::byte> out(want.bytes.size());
    kernel(x.bytes.data(), out.data(), x.shape.num_elements());
    EXPECT_EQ(golden_diff(want, out.data(), want.dtype, x.shape, 0), "") << c.name;
    ++count;
  }
  EXPECT_GT(count, 100);
}

}  // namespace
}  // namespace shmap
