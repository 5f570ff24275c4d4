// Reductions, scans, norms and sorts, along rows, columns and middle dims.
#include "bench/wide/wide.h"

namespace shmap::bench {

void add_reductions(WideRows& rows) {
  rows.eager("eager_sum_1k", "f32[1000]", [](Array x) { return sum(x); });
  rows.eager("eager_softmax_small", "f32[32,100]", [](Array x) { return softmax(x); });
  rows.jit("sum_all_16m", "f32[16777216]", [](Array x) { return sum(x); });
  rows.jit("sum_rows_odd", "f32[4095,1023]", [](Array x) { return sum(x, 1); });
  rows.jit("sum_columns_odd", "f32[4095,1023]", [](Array x) { return sum(x, 0); });
  rows.jit("sum_middle", "f32[64,300,200]", [](Array x) { return sum(x, 1); });
  rows.jit("sum_outer_dims_bf16", "bf16[32,128,768]", [](Array x) { return sum(x, {0, 1}); });
  rows.jit("sum_int_rows", "i32[2000,2001]", [](Array x) { return sum(x, 1); });
  rows.jit("any_columns", "f32[2000,2001]", [](Array x) { return any(x > 0.9999f, 0); });
  rows.jit("mean_var_f64", "f64[1000,1001]", [](Array x) {
    return std::pair{mean(x, 1), var(x, 1)};
  });
  rows.jit("max_columns_bf16", "bf16[2048,2049]", [](Array x) { return max(x, 0); });
  rows.jit("argmax_rows", "f32[4096,1000]", [](Array x) { return argmax(x, 1); });
  rows.jit("argmin_columns", "f32[1000,2049]", [](Array x) { return argmin(x, 0); });
  rows.jit("row_norm_bf16", "bf16[4096,2048]", [](Array x) { return sqrt(sum(square(x), 1)); });
  rows.jit("column_norm_f64", "f64[1500,1001]", [](Array x) { return sqrt(sum(square(x), 0)); });
  rows.jit("rms_norm_bf16", "bf16[4096,1024] bf16[1024]",
           [](Array x, Array scale) { return rms_norm(x, scale); });
  rows.jit("layer_norm_odd", "f32[1000,769] f32[769] f32[769]",
           [](Array x, Array scale, Array bias) { return layer_norm(x, scale, bias); });
  rows.jit("layer_norm_bf16", "bf16[2048,768] bf16[768] bf16[768]",
           [](Array x, Array scale, Array bias) { return layer_norm(x, scale, bias); });
  rows.jit("softmax_vocabulary", "f32[128,50257]", [](Array x) { return softmax(x); });
  rows.jit("softmax_columns", "f32[1024,1000]", [](Array x) { return softmax(x, 0); });
  rows.jit("log_softmax_bf16", "bf16[2048,1000]", [](Array x) { return log_softmax(x); });
  rows.jit("logsumexp_f64", "f64[1000,1000]", [](Array x) { return logsumexp(x, 1); });
  rows.jit("normalize_columns", "f32[1023,1025]", [](Array x) {
    const Array centred = x - mean(x, 0);
    return centred * rsqrt(mean(square(centred), 0) + 1e-5f);
  });
  rows.jit("cumsum_rows", "f32[1024,1001]", [](Array x) { return cumsum(x, 1); });
  rows.jit("cumsum_columns", "f32[1024,1001]", [](Array x) { return cumsum(x, 0); });
  rows.jit("cumsum_int_1m", "i32[1000000]<10", [](Array x) { return cumsum(x, 0); });
  rows.jit("cumprod_f64", "f64[200,2000]+", [](Array x) { return cumprod(x, 1); });
  rows.jit("sort_1m", "f32[1000000]", [](Array x) { return sort(x); });
  rows.jit("sort_rows", "f32[1000,1000]", [](Array x) { return sort(x); });
  rows.jit("argsort_int", "i32[100000]<1000000000", [](Array x) { return argsort(x); });
  rows.jit("top_k", "f32[512,5000]", [](Array x) { return top_k(x, 8); });
}

}  // namespace shmap::bench
