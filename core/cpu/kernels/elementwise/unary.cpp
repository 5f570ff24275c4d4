#include "core/cpu/kernels/elementwise/unary.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/float_format.h"
#include "core/cpu/kernels/elementwise/half_block.h"
#include "core/cpu/kernels/elementwise/unary_lookup.h"

namespace shmap::cpu {
namespace {

template <DType half>
void run_half(UnaryFn kernel, const void* in, void* out, std::int64_t n) {
  const CastFn widen = cast_kernel(half, DType::f32);
  const CastFn narrow = cast_kernel(DType::f32, half);
  alignas(64) float block[kHalfBlock];
  for (std::int64_t i = 0; i < n; i += kHalfBlock) {
    const std::int64_t m = std::min(kHalfBlock, n - i);
    widen(static_cast<const std::uint16_t*>(in) + i, block, m);
    kernel(block, block, m);
    narrow(block, static_cast<std::uint16_t*>(out) + i, m);
  }
}

template <DType half>
void test_half(UnaryFn kernel, const void* in, void* out, std::int64_t n) {
  const CastFn widen = cast_kernel(half, DType::f32);
  alignas(64) float block[kHalfBlock];
  for (std::int64_t i = 0; i < n; i += kHalfBlock) {
    const std::int64_t m = std::min(kHalfBlock, n - i);
    widen(static_cast<const std::uint16_t*>(in) + i, block, m);
    kernel(block, static_cast<std::uint8_t*>(out) + i, m);
  }
}

template <DType half, UnaryOp op>
void half_kernel(const void* in, void* out, std::int64_t n) {
  static const UnaryFn kernel = unary_kernel(op, DType::f32);
  if constexpr (is_predicate(op))
    test_half<half>(kernel, in, out, n);
  else
    run_half<half>(kernel, in, out, n);
}

template <DType half, int... ops>
UnaryFn find_half(UnaryOp op, std::integer_sequence<int, ops...>) {
  static constexpr std::array<UnaryFn, sizeof...(ops)> table = {
      half_kernel<half, static_cast<UnaryOp>(ops)>...};
  return table[static_cast<std::size_t>(op)];
}

}  // namespace

UnaryFn unary_kernel(UnaryOp op, DType dtype) {
  if (const UnaryFn kernel = unary_arith_kernel(op, dtype)) return kernel;
  if (is_half(dtype)) {
    if (!unary_kernel(op, DType::f32)) return nullptr;
    constexpr auto ops = std::make_integer_sequence<int, kUnaryOpCount>{};
    return dtype == DType::f16 ? find_half<DType::f16>(op, ops) : find_half<DType::bf16>(op, ops);
  }
  if (dtype == DType::f32) return unary_math_f32_kernel(op);
  if (dtype == DType::f64) return unary_math_f64_kernel(op);
  return nullptr;
}

}  // namespace shmap::cpu
