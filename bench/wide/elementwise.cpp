// Elementwise work, fused and one operation at a time.
#include "bench/wide/wide.h"

namespace shmap::bench {

void add_elementwise(WideRows& rows) {
  rows.eager("eager_add_1m", "f32[1048576] f32[1048576]", [](Array x, Array y) { return x + y; });
  rows.eager("eager_add_bf16", "bf16[2000,2001] bf16[2000,2001]",
             [](Array x, Array y) { return x + y; });
  rows.eager("eager_chain_10k", "f32[10007]",
             [](Array x) { return tanh(x * 2.f + 1.f) * x - exp(x); });
  rows.jit("axpy_odd", "f32[999983] f32[999983]", [](Array x, Array y) { return 2.5f * x + y; });
  rows.jit("add_int8_16m", "i8[16777216]<50 i8[16777216]<50",
           [](Array x, Array y) { return x + y; });
  rows.jit("gelu_bf16", "bf16[2048,1536]", [](Array x) { return gelu(x); });
  rows.jit("tanh_f64", "f64[1000003]", [](Array x) { return tanh(x); });
  rows.jit("sin_cos", "f32[1023,1025]", [](Array x) { return sin(x) * cos(x); });
  rows.jit("pow_float", "f32[1000000]+ f32[1000000]", [](Array x, Array y) { return pow(x, y); });
  rows.jit("erf_logistic", "f32[777,1333]", [](Array x) { return erf(x) * logistic(x); });
  rows.jit("log1p_expm1_f64", "f64[300000]+", [](Array x) { return log1p(x) - expm1(x); });
  rows.jit("where_odd", "f32[1023,1025] f32[1023,1025]",
           [](Array x, Array y) { return where(x > y, x, y * 0.5f); });
  rows.jit("int_mod", "i32[4000001]<100000", [](Array x) { return (x * 3 + 5) % 7; });
  rows.jit("int_floor_divide_i64", "i64[1000000]<100000",
           [](Array x) { return floor_divide(x - 50000, 17); });
  rows.jit("xorshift_u32", "u32[4194304]<1000000", [](Array x) {
    Array y = bitwise_xor(x, left_shift(x, 13));
    y = bitwise_xor(y, right_shift(y, 17));
    return bitwise_xor(y, left_shift(y, 5));
  });
  rows.jit("quantize_int8", "f32[3000,1001]",
           [](Array x) { return astype(round(clip(x * 127.f, -127.f, 127.f)), i8); });
  rows.jit("cast_f32_bf16", "f32[4000,1001]", [](Array x) { return astype(x, bf16); });
  rows.jit("cast_i32_f64", "i32[2000001]", [](Array x) { return astype(x, f64); });
  rows.jit("add_row", "f32[2047,1025] f32[1025]", [](Array x, Array row) { return x + row; });
  rows.jit("scale_columns", "f32[2047,1025] f32[2047,1]",
           [](Array x, Array column) { return x * column; });
  rows.jit("outer_difference", "f32[1500,1] f32[1,1501]",
           [](Array x, Array y) { return abs(x - y); });
  rows.jit("small_chain_1k", "f32[1000] f32[1000]",
           [](Array x, Array y) { return sqrt(abs(x * y + 1.f)) - tanh(x); });
}

}  // namespace shmap::bench
