// Fused programs that the tests of their kernels share.
#pragma once
#include <cstdint>
#include <memory>

#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/runtime/fused_program.h"

namespace shmap::cuda::testing {

using Program = std::shared_ptr<FusedProgram>;

// tanh((x * 1.5 + y) * a), with a scalar a.
inline Program map_program(std::int64_t n) {
  auto p = std::make_shared<FusedProgram>(1, n);
  const int x = p->add_input(f32, FusedKind::full), y = p->add_input(f32, FusedKind::full),
            a = p->add_input(f32, FusedKind::scalar);
  const float factor = 1.5f;
  const int scaled = p->add_map(mul_p, {x, p->add_literal(f32, &factor)});
  const int shifted = p->add_map(mul_p, {p->add_map(add_p, {scaled, y}), a});
  p->add_output(p->add_map(tanh_p, {shifted}), ShapedArray({n}, f32));
  return p;
}

inline Program softmax_program(std::int64_t rows, std::int64_t cols, DType dtype = f32) {
  auto p = std::make_shared<FusedProgram>(rows, cols);
  const int x = p->add_input(dtype, FusedKind::full);
  const int most = p->add_broadcast(p->add_reduce(reduce_max_p, x), FusedKind::full);
  const int e = p->add_map(exp_p, {p->add_map(sub_p, {x, most})});
  const int sum = p->add_broadcast(p->add_reduce(reduce_sum_p, e), FusedKind::full);
  p->add_output(p->add_map(div_p, {e, sum}), ShapedArray({rows, cols}, dtype));
  return p;
}

// A program of bf16, computed in f32: (x - mean) * rsqrt(var + eps) * scale + bias.
inline Program layer_norm_program(std::int64_t rows, std::int64_t cols) {
  auto p = std::make_shared<FusedProgram>(rows, cols);
  const auto as = [&](int v, DType dtype) {
    return p->add_map(convert_element_type_p, {v}, std::make_shared<ConvertParams>(dtype));
  };
  const auto literal = [&](float value) { return p->add_literal(f32, &value); };
  const int x = as(p->add_input(bf16, FusedKind::full), f32);
  const int scale = as(p->add_input(bf16, FusedKind::col), f32);
  const int bias = as(p->add_input(bf16, FusedKind::col), f32);
  const auto n = static_cast<float>(cols);
  const int mean = p->add_map(div_p, {p->add_reduce(reduce_sum_p, x), literal(n)});
  const int d = p->add_map(sub_p, {x, mean});
  const int var =
      p->add_map(div_p, {p->add_reduce(reduce_sum_p, p->add_map(square_p, {d})), literal(n)});
  const int factor = p->add_map(rsqrt_p, {p->add_map(add_p, {var, literal(1e-5f)})});
  const int y = p->add_map(mul_p, {p->add_map(mul_p, {d, factor}), scale});
  p->add_output(as(p->add_map(add_p, {y, bias}), bf16), ShapedArray({rows, cols}, bf16));
  return p;
}

// Every elementwise primitive that takes the dtype, and every conversion from it and back, joined
// by comparisons to one result.
inline Program every_map_program(DType dtype, std::int64_t n) {
  auto p = std::make_shared<FusedProgram>(1, n);
  const int x = p->add_input(dtype, FusedKind::full), y = p->add_input(dtype, FusedKind::full);
  int all = p->add_map(eq_p, {x, y});
  const auto join = [&](int v) { all = p->add_map(bit_xor_p, {all, p->add_map(ne_p, {v, x})}); };
#define SHMAP_UNARY(name, domain, ...) \
  if (in_domain(dtype, Domain::domain)) join(p->add_map(name##_p, {x}));
#define SHMAP_BINARY(name, domain, ...) \
  if (in_domain(dtype, Domain::domain)) join(p->add_map(name##_p, {x, y}));
#define SHMAP_COMPARE(name, domain, ...) \
  if (in_domain(dtype, Domain::domain))  \
    all = p->add_map(bit_and_p, {all, p->add_map(name##_p, {x, y})});
  SHMAP_UNARY_OPS(SHMAP_UNARY)
  SHMAP_BINARY_OPS(SHMAP_BINARY)
  SHMAP_COMPARE_OPS(SHMAP_COMPARE)
  if (is_floating(dtype)) all = p->add_map(bit_xor_p, {all, p->add_map(is_finite_p, {x})});
#undef SHMAP_UNARY
#undef SHMAP_BINARY
#undef SHMAP_COMPARE
  join(p->add_map(select_n_p, {all, x, y}));
  join(p->add_map(clamp_p, {x, y, x}));
  for (const DType to : {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64}) {
    const auto cast = [&](int v, DType target) {
      return p->add_map(convert_element_type_p, {v}, std::make_shared<ConvertParams>(target));
    };
    join(cast(cast(x, to), dtype));
    if (itemsize(to) != itemsize(dtype)) continue;
    const auto same = [&](int v, DType target) {
      return p->add_map(bitcast_convert_type_p, {v}, std::make_shared<ConvertParams>(target));
    };
    if (to != bool_ && dtype != bool_) join(same(same(x, to), dtype));
  }
  p->add_output(all, ShapedArray({n}, bool_));
  return p;
}

inline constexpr DType kFusedDTypes[] = {bool_, i8,  i16, i32,  i64, u8, u16,
                                         u32,   u64, f16, bf16, f32, f64};

}  // namespace shmap::cuda::testing
