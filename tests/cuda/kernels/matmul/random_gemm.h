// Products of random floats by one of the library's own kernels, compared with sums of doubles.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/kernels/matmul/cublaslt_gemm.h"
#include "tests/cuda/kernels/device_memory.h"

namespace shmap::cuda::testing {

struct Form {
  std::int64_t m, k, n, batch = 1;
  bool trans_a = false, trans_b = false;
  std::int64_t gap = 0;     // elements between rows
  std::int64_t offset = 0;  // bytes from an aligned address to a and b
  bool adds = false, in_place = false, bias = false;
  Activation function = Activation::none;
};

inline std::string text(const Form& f) {
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

inline double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

// Computes the product by `gemm`, and compares it with sums of doubles. Returns its elements.
template <class T, class Out>
std::vector<Out> product(void (*gemm)(const LtGemm&, void*), DType dtype, DType out, const Form& f,
                         double tolerance) {
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
  on_stream([&](void* stream) { gemm(g, stream); });
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

}  // namespace shmap::cuda::testing
