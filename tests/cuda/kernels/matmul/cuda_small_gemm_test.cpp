// Small products by the library's own kernel: values, of every form that cublaslt_gemm.h describes,
// and the same bits wherever the operands lie.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/kernels/matmul/small_gemm.h"
#include "tests/cuda/kernels/device_memory.h"

namespace shmap::cuda {
namespace {

using testing::DeviceBytes;
using testing::on_stream;

class CudaSmallGemm : public testing::OnGpu {};

struct Form {
  std::int64_t m, k, n, batch = 1;
  bool trans_a = false, trans_b = false;
  std::int64_t gap = 0;     // elements between rows
  std::int64_t offset = 0;  // bytes from an aligned address to a and b
  bool adds = false, in_place = false, bias = false;
  Activation function = Activation::none;
};

std::string text(const Form& f) {
  return std::to_string(f.batch) + " of " + std::to_string(f.m) + "x" + std::to_string(f.k) + "x" +
         std::to_string(f.n) + (f.trans_a ? ", a transposed" : "") +
         (f.trans_b ? ", b transposed" : "") + ", gap " + std::to_string(f.gap) + ", offset " +
         std::to_string(f.offset) + (f.adds ? ", a term" : "") + (f.in_place ? " in place" : "") +
         (f.bias ? ", a bias" : "") + ", function " + std::to_string(static_cast<int>(f.function));
}

template <class T>
std::vector<T> random_items(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> items;
  for (std::int64_t i = 0; i < n; ++i)
    items.push_back(T(static_cast<float>(random() % 2001) / 1000.f - 1.f));
  return items;
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

// Computes the product on the GPU, and compares it with sums of doubles. Returns its elements.
template <class T, class Out>
std::vector<Out> product(DType dtype, DType out, const Form& f, double tolerance) {
  SCOPED_TRACE(std::string(short_name(dtype)) + " -> " + short_name(out) + ", " + text(f));
  LtGemm g;
  g.dtype = dtype;
  g.out = out;
  g.trans_a = f.trans_a;
  g.trans_b = f.trans_b;
  g.m = f.m;
  g.k = f.k;
  g.n = f.n;
  g.batch = f.batch;
  g.lda = (f.trans_a ? f.m : f.k) + f.gap;
  g.ldb = (f.trans_b ? f.k : f.n) + f.gap;
  g.ldc = g.ldd = f.n + f.gap;
  g.stride_a = (f.trans_a ? f.k : f.m) * g.lda;
  g.stride_b = (f.trans_b ? f.n : f.k) * g.ldb;
  g.stride_c = g.stride_d = f.m * g.ldc;
  g.function = f.function;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::vector<T> a_items = random_items<T>(f.batch * g.stride_a, 1);
  const std::vector<T> b_items = random_items<T>(f.batch * g.stride_b, 2);
  const std::vector<Out> d_items = random_items<Out>(f.batch * g.stride_d, 3);
  const std::vector<Out> bias_items = random_items<Out>(f.n, 4);
  const DeviceBytes a(a_items, f.offset), b(b_items, f.offset), d(d_items), bias(bias_items);
  const DeviceBytes c(d_items);
  g.a = a.data();
  g.b = b.data();
  g.c = c.data();
  if (f.adds) g.d = f.in_place ? c.data() : d.data();
  if (f.bias) g.bias = bias.data();
  on_stream([&](void* stream) { small_gemm(g, stream); });
  const std::vector<Out> got = c.read<Out>();
  std::vector<Out> elements;
  for (std::int64_t item = 0; item < f.batch; ++item) {
    for (std::int64_t i = 0; i < f.m; ++i) {
      for (std::int64_t j = 0; j < g.ldc; ++j) {
        const std::size_t at = size(item * g.stride_c + i * g.ldc + j);
        if (j >= f.n) {  // between the rows nothing is written
          EXPECT_EQ(std::memcmp(&got[at], &d_items[at], sizeof(Out)), 0) << i << ", " << j;
          continue;
        }
        double want = 0;
        for (std::int64_t l = 0; l < f.k; ++l) {
          const T x =
              a_items[size(item * g.stride_a + (f.trans_a ? l * g.lda + i : i * g.lda + l))];
          const T y =
              b_items[size(item * g.stride_b + (f.trans_b ? j * g.ldb + l : l * g.ldb + j))];
          want += static_cast<double>(x) * static_cast<double>(y);
        }
        if (f.adds) want += static_cast<double>(d_items[at]);
        if (f.bias) want += static_cast<double>(bias_items[size(j)]);
        if (f.function == Activation::relu) want = std::max(want, 0.0);
        if (f.function == Activation::gelu) want = gelu(want);
        EXPECT_NEAR(static_cast<double>(got[at]), want, tolerance * (1 + std::abs(want)))
            << item << ", " << i << ", " << j;
        elements.push_back(got[at]);
      }
    }
  }
  return elements;
}

void expect_products(const Form& f) {
  product<float, float>(f32, f32, f, 2e-6);
  product<double, double>(f64, f64, f, 1e-14);
  product<float16, float16>(f16, f16, f, 1e-3);
  product<bfloat16, bfloat16>(bf16, bf16, f, 8e-3);
  product<float16, float>(f16, f32, f, 2e-6);
  product<bfloat16, float>(bf16, f32, f, 2e-6);
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
  const std::vector<float> want = product<float, float>(f32, f32, plain, 2e-6);
  for (const std::int64_t offset : {4, 8, 16}) {
    Form other = plain;
    other.offset = offset;
    EXPECT_EQ((product<float, float>(f32, f32, other, 2e-6)), want) << text(other);
  }
  Form many = plain;
  many.batch = 40;
  std::vector<float> first = product<float, float>(f32, f32, many, 2e-6);
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
  for (const auto& [dtype, deepest] : {std::pair(f32, 256), {f64, 128}, {bf16, 128}, {f16, 64}}) {
    g.dtype = g.out = dtype;
    for (const int n : {64, 128, 256}) {
      g.m = g.k = g.n = n;
      EXPECT_EQ(is_small(g), n <= deepest) << short_name(dtype) << " " << n;
    }
  }
}

}  // namespace
}  // namespace shmap::cuda
