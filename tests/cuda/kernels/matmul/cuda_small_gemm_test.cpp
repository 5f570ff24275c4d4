// Small products by the library's own kernel: values, of every form that cublaslt_gemm.h describes,
// and the same bits wherever the operands lie.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cuda/kernels/matmul/small_gemm.h"
#include "tests/cuda/kernels/matmul/random_gemm.h"

namespace shmap::cuda {
namespace {

using testing::Form;
using testing::product;

class CudaSmallGemm : public testing::OnGpu {};

void expect_products(const Form& f) {
  product<float, float>(small_gemm, f32, f32, f, 2e-6);
  product<double, double>(small_gemm, f64, f64, f, 1e-14);
  product<float16, float16>(small_gemm, f16, f16, f, 1e-3);
  product<bfloat16, bfloat16>(small_gemm, bf16, bf16, f, 8e-3);
  product<float16, float>(small_gemm, f16, f32, f, 2e-6);
  product<bfloat16, float>(small_gemm, bf16, f32, f, 2e-6);
}

TEST_F(CudaSmallGemm, EveryExtentAndOrder) {
  const std::int64_t extents[][3] = {{1, 1, 1}, {8, 16, 16}, {24, 80, 32}, {9, 17, 33}, {3, 70, 5}};
  for (const auto& [m, k, n] : extents)
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        expect_products({.m = m, .k = k, .n = n, .trans_a = trans_a, .trans_b = trans_b});
}

TEST_F(CudaSmallGemm, BatchesAndRowsWithGaps) {
  expect_products({.m = 16, .k = 24, .n = 40, .batch = 3});
  expect_products({.m = 16, .k = 24, .n = 40, .batch = 3, .gap = 8});
  expect_products({.m = 5, .k = 24, .n = 7, .batch = 2, .trans_b = true, .gap = 3});
  expect_products({.m = 16, .k = 16, .n = 16, .offset = 8});
}

TEST_F(CudaSmallGemm, ATermABiasAndAFunction) {
  for (const Activation function : {Activation::none, Activation::relu, Activation::gelu}) {
    for (const bool bias : {false, true}) {
      expect_products({.m = 9, .k = 20, .n = 17, .bias = bias, .function = function});
      expect_products({.m = 9, .k = 20, .n = 17, .adds = true, .bias = bias, .function = function});
    }
  }
  expect_products({.m = 9, .k = 20, .n = 17, .batch = 2, .adds = true, .in_place = true});
}

// 40 items have more results than small tiles are for.
TEST_F(CudaSmallGemm, HasTheSameBitsWhereverOperandsLie) {
  const Form plain{.m = 32, .k = 50, .n = 48};
  const std::vector<float> want = product<float, float>(small_gemm, f32, f32, plain, 2e-6);
  for (const std::int64_t offset : {4, 8, 16}) {
    Form other = plain;
    other.offset = offset;
    EXPECT_EQ((product<float, float>(small_gemm, f32, f32, other, 2e-6)), want) << text(other);
  }
  Form many = plain;
  many.batch = 40;
  std::vector<float> first = product<float, float>(small_gemm, f32, f32, many, 2e-6);
  first.resize(want.size());
  EXPECT_EQ(first, want);
}

TEST_F(CudaSmallGemm, IsForFewOperations) {
  LtGemm g;
  g.m = g.k = g.n = 64;
  EXPECT_TRUE(is_small(g));
  for (const auto& change : {+[](LtGemm& x) { x.m = x.n = 4096; }, +[](LtGemm& x) { x.k = 513; },
                             +[](LtGemm& x) { x.batch = 65536; }, +[](LtGemm& x) { x.tf32 = true; },
                             +[](LtGemm& x) { x.m = std::int64_t{1} << 20, x.n = x.k = 1; }}) {
    LtGemm other = g;
    change(other);
    EXPECT_FALSE(is_small(other));
  }
}

}  // namespace
}  // namespace shmap::cuda
