// Products of f32 by tiles of 64 x 64 results: values of every form that cublaslt_gemm.h describes.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/kernels/matmul/tile_gemm.h"
#include "tests/cuda/kernels/matmul/random_gemm.h"

namespace shmap::cuda {
namespace {

using testing::Form;
using testing::product;

class CudaTileGemm : public testing::OnGpu {};

void expect_product(const Form& f) { product<float, float>(tile_gemm, f32, f32, f, 5e-6); }

TEST_F(CudaTileGemm, EveryExtentAndOrder) {
  for (const std::vector<std::int64_t>& mkn : std::vector<std::vector<std::int64_t>>{
           {64, 16, 64}, {64, 48, 128}, {4, 4, 4}, {68, 20, 132}, {8, 120, 60}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        expect_product(
            {.m = mkn[0], .k = mkn[1], .n = mkn[2], .trans_a = trans_a, .trans_b = trans_b});
}

TEST_F(CudaTileGemm, BatchesAndRowsWithGaps) {
  expect_product({.m = 68, .k = 24, .n = 72, .batch = 3});
  expect_product({.m = 68, .k = 24, .n = 72, .batch = 2, .gap = 4});
  expect_product({.m = 7, .k = 24, .n = 9, .trans_b = true});  // rows of the result lie oddly
}

TEST_F(CudaTileGemm, ATermABiasAndAFunction) {
  for (const Activation function : {Activation::none, Activation::relu, Activation::gelu}) {
    for (const bool bias : {false, true}) {
      expect_product({.m = 20, .k = 20, .n = 72, .bias = bias, .function = function});
      expect_product({.m = 20, .k = 20, .n = 72, .adds = true, .bias = bias, .function = function});
    }
  }
  expect_product({.m = 20, .k = 20, .n = 72, .batch = 2, .adds = true, .in_place = true});
}

TEST_F(CudaTileGemm, IsForFloatsThatLieAsPiecesOf16Bytes) {
  alignas(16) static float memory[8];
  LtGemm g;
  g.m = g.k = g.n = g.lda = g.ldb = g.ldc = 512;
  g.a = g.b = g.c = memory;
  EXPECT_TRUE(may_be_tiled(g));
  for (const auto& change :
       {+[](LtGemm& x) { x.tf32 = true; }, +[](LtGemm& x) { x.dtype = x.out = bf16; },
        +[](LtGemm& x) { x.a = memory + 1; }, +[](LtGemm& x) { x.ldb = 513; },
        +[](LtGemm& x) { x.m = 16, x.k = 16; }, +[](LtGemm& x) { x.m = x.n = x.k = 8192; }}) {
    LtGemm other = g;
    change(other);
    EXPECT_FALSE(may_be_tiled(other));
  }
}

}  // namespace
}  // namespace shmap::cuda
