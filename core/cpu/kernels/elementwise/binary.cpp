#include "core/cpu/kernels/elementwise/binary.h"

#include <array>
#include <utility>

#include "core/base/float_format.h"
#include "core/cpu/kernels/elementwise/binary_lookup.h"
#include "core/cpu/kernels/elementwise/half_block.h"

namespace shmap::cpu {
namespace {

template <DType half, BinaryOp op>
void half_kernel(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out,
                 std::int64_t n) {
  static const BinaryFn kernel = binary_kernel(op, DType::f32);
  run_half_binary(kernel, half, cast_kernel(DType::f32, half), a, a_scalar, b, b_scalar, out, n);
}

template <DType half, int... ops>
BinaryFn find_half(BinaryOp op, std::integer_sequence<int, ops...>) {
  static constexpr std::array<BinaryFn, sizeof...(ops)> table = {
      half_kernel<half, static_cast<BinaryOp>(ops)>...};
  return table[static_cast<std::size_t>(op)];
}

}  // namespace

BinaryFn binary_kernel(BinaryOp op, DType dtype) {
  if (const BinaryFn kernel = binary_bits_kernel(op, dtype)) return kernel;
  if (is_half(dtype)) {
    if (!binary_kernel(op, DType::f32)) return nullptr;
    const BinaryFn direct = dtype == DType::bf16 ? binary_bf16_kernel(op) : nullptr;
    if (direct != nullptr) return direct;
    constexpr auto ops = std::make_integer_sequence<int, kBinaryOpCount>{};
    return dtype == DType::f16 ? find_half<DType::f16>(op, ops) : find_half<DType::bf16>(op, ops);
  }
  if (const BinaryFn kernel = binary_float_kernel(op, dtype)) return kernel;
  if (dtype == DType::f32) return binary_math_f32_kernel(op);
  if (dtype == DType::f64) return binary_math_f64_kernel(op);
  return binary_int_kernel(op, dtype);
}

}  // namespace shmap::cpu
