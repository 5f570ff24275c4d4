// Matrix products: odd, thin, batched and small, of every dtype, by matmul and by einsum.
#include "bench/wide/wide.h"

namespace shmap::bench {
namespace {

double product(double m, double k, double n) { return 2 * m * k * n; }

}  // namespace

void add_products(WideRows& rows) {
  const auto multiply = [](Array a, Array b) { return matmul(a, b); };
  rows.eager("eager_matmul_64", "f32[64,64] f32[64,64]", multiply).flops(product(64, 64, 64));
  rows.eager("eager_matmul_300", "f32[300,300] f32[300,300]", multiply)
      .flops(product(300, 300, 300));
  rows.jit("matmul_512", "f32[512,512] f32[512,512]", multiply).flops(product(512, 512, 512));
  rows.jit("matmul_odd", "f32[777,333] f32[333,555]", multiply).flops(product(777, 333, 555));
  rows.jit("matmul_odd_large", "f32[1001,1003] f32[1003,999]", multiply)
      .flops(product(1001, 1003, 999));
  rows.jit("matmul_f64", "f64[512,512] f64[512,512]", multiply).flops(product(512, 512, 512));
  rows.jit("matmul_f64_odd", "f64[301,401] f64[401,203]", multiply).flops(product(301, 401, 203));
  rows.jit("matmul_bf16", "bf16[512,512] bf16[512,512]", multiply).flops(product(512, 512, 512));
  rows.jit("matmul_bf16_odd", "bf16[333,1000] bf16[1000,257]", multiply)
      .flops(product(333, 1000, 257));
  rows.jit("matmul_f16", "f16[300,300] f16[300,300]", multiply).flops(product(300, 300, 300));
  rows.jit("matmul_int", "i32[200,200] i32[200,200]", multiply);
  rows.jit("matmul_thin", "f32[20000,32] f32[32,32]", multiply).flops(product(20000, 32, 32));
  rows.jit("matmul_long_sum", "f32[32,20000] f32[20000,32]", multiply)
      .flops(product(32, 20000, 32));
  rows.jit("matrix_vector", "f32[2048,2047] f32[2047]", multiply);
  rows.jit("vector_matrix", "f32[1,1024] f32[1024,4096]", multiply);
  rows.jit("vector_matrix_bf16", "bf16[1,1024] bf16[1024,4096]", multiply);
  rows.jit("few_rows", "f32[8,1024] f32[1024,4096]", multiply).flops(product(8, 1024, 4096));
  rows.jit("dot_1m", "f32[1000001] f32[1000001]", [](Array x, Array y) { return dot(x, y); });
  rows.jit("outer_2000", "f32[2000] f32[2001]", [](Array x, Array y) { return outer(x, y); });
  rows.jit("batched_4", "f32[10000,4,4] f32[10000,4,4]", multiply).flops(10000 * product(4, 4, 4));
  rows.jit("batched_16", "f32[1024,16,16] f32[1024,16,16]", multiply)
      .flops(1024 * product(16, 16, 16));
  rows.jit("batched_odd", "f32[64,65,33] f32[64,33,17]", multiply).flops(64 * product(65, 33, 17));
  rows.jit("batched_64", "f32[64,64,64] f32[64,64,64]", multiply).flops(64 * product(64, 64, 64));
  rows.jit("batched_f64", "f64[100,24,24] f64[100,24,24]", multiply)
      .flops(100 * product(24, 24, 24));
  rows.jit("batched_vectors", "f32[500,64,64] f32[500,64,1]", multiply);
  rows.jit("transposed_product", "f32[600,601] f32[601,600]",
           [](Array a, Array b) { return einsum("ki,jk->ij", a, b); })
      .flops(product(601, 600, 601));
  rows.jit("scores_heads", "f32[4,128,8,64] f32[4,128,8,64]",
           [](Array q, Array k) { return einsum("bqhd,bkhd->bhqk", q, k); })
      .flops(32 * product(128, 64, 128));
  rows.jit("scores_heads_bf16", "bf16[4,128,8,64] bf16[4,128,8,64]",
           [](Array q, Array k) { return einsum("bqhd,bkhd->bhqk", q, k); })
      .flops(32 * product(128, 64, 128));
  rows.jit("contract_two_dims", "f32[64,8,64] f32[8,64,512]",
           [](Array a, Array b) { return einsum("shd,hde->se", a, b); })
      .flops(product(64, 512, 512));
  rows.jit("bias_relu_product", "f32[256,784] f32[784,300] f32[300]",
           [](Array x, Array w, Array b) { return relu(matmul(x, w) + b); })
      .flops(product(256, 784, 300));
  rows.jit("pairwise_distances", "f32[500,64] f32[700,64]",
           [](Array x, Array y) {
             return sum(square(x), 1, true) + sum(square(y), 1) - 2.f * matmul(x, transpose(y));
           })
      .flops(product(500, 64, 700));
}

}  // namespace shmap::bench
