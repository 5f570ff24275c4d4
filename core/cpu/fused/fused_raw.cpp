#include "core/cpu/fused/fused_raw.h"

#include <string>

#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/elementwise/compare.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"

namespace shmap::cpu {

namespace {

using Form = ElementwiseRow::Form;

[[noreturn]] void throw_no_step(const Primitive& primitive, DType dtype) {
  throw TypeError(std::string("fused: there is no kernel of ") + primitive.name + " for " +
                  to_string(dtype) + ": leave it out of fused programs");
}

const ElementwiseRow& elementwise_row_of(const Primitive& primitive, DType operand) {
  if (primitive.elementwise_row == nullptr) throw_no_step(primitive, operand);
  return *primitive.elementwise_row;
}

FusedStep unary_step(UnaryFn kernel) {
  FusedStep step;
  step.kind = FusedStep::unary;
  step.one = kernel;
  return step;
}
FusedStep binary_step(BinaryFn kernel) {
  FusedStep step;
  step.kind = FusedStep::binary;
  step.two = kernel;
  return step;
}

// The operation of a chain of elements of `dtype` that does what a row of the table does.
ChainCode chain_code(const ElementwiseRow& row, DType dtype) {
#define SHMAP_BINARY(name) \
  if (row.binary() == BinaryOp::name) return ChainCode::name;
#define SHMAP_UNARY(name) \
  if (row.unary() == UnaryOp::name) return ChainCode::name;
  if (row.form == Form::binary) {
    SHMAP_CHAIN_BINARY(SHMAP_BINARY)
    if (dtype == DType::f32) {
      SHMAP_CHAIN_BINARY_FLOAT(SHMAP_BINARY)
    } else {
      SHMAP_CHAIN_BINARY_INT(SHMAP_BINARY)
    }
  } else if (row.form == Form::unary) {
    SHMAP_CHAIN_UNARY(SHMAP_UNARY)
    if (dtype == DType::f32) {
      SHMAP_CHAIN_UNARY_FLOAT(SHMAP_UNARY)
    } else {
      SHMAP_CHAIN_UNARY_INT(SHMAP_UNARY)
    }
  }
#undef SHMAP_BINARY
#undef SHMAP_UNARY
  return ChainCode::none;
}

// The operation that ends a chain with the conversion of its values; none where there is none.
ChainCode narrowing_code(const ElementwiseRow& row, DType operand, DType result) {
  if (row.form != Form::convert || operand != DType::f32) return ChainCode::none;
  return result == DType::i8   ? ChainCode::narrow_i8
         : result == DType::u8 ? ChainCode::narrow_u8
                               : ChainCode::none;
}

FusedStep step_of(FusedStep::Kind kind) {
  FusedStep step;
  step.kind = kind;
  return step;
}

// The step for one row of the table. Its kernel is null if there is none for these dtypes.
FusedStep row_step(const ElementwiseRow& row, DType operand, DType result) {
  switch (row.form) {
    case Form::unary:
      return unary_step(unary_kernel(row.unary(), operand));
    case Form::binary:
      return binary_step(binary_kernel(row.binary(), operand));
    case Form::compare:
      return binary_step(compare_kernel(row.compare(), operand));
    case Form::select:
      return step_of(FusedStep::select);
    case Form::clamp:
      return step_of(FusedStep::clamp);
    case Form::convert:
      return unary_step(cast_kernel(operand, result));
    case Form::bits:
      break;
  }
  return unary_step(itemsize(operand) == itemsize(result) ? cast_kernel(result, result) : nullptr);
}

}  // namespace

FusedStep raw_step(const Primitive& primitive, DType operand, DType result) {
  const ElementwiseRow& row = elementwise_row_of(primitive, operand);
  FusedStep step = row_step(row, operand, result);
  const bool calls_kernel = step.kind == FusedStep::unary || step.kind == FusedStep::binary;
  if (calls_kernel && step.one == nullptr) throw_no_step(primitive, operand);
  step.dtype = result;
  step.itemsize = static_cast<std::int8_t>(itemsize(result));
  if (chain_kernel(operand)) {
    step.code = operand == result ? chain_code(row, operand) : narrowing_code(row, operand, result);
  }
  return step;
}

ChainCode division_code(const Primitive& primitive, DType dtype) {
  if ((dtype != DType::i32 && dtype != DType::u32) || !chain_kernel(dtype)) return ChainCode::none;
  const ElementwiseRow& row = elementwise_row_of(primitive, dtype);
  if (row.form != Form::binary) return ChainCode::none;
  return row.binary() == BinaryOp::rem   ? ChainCode::rem
         : row.binary() == BinaryOp::div ? ChainCode::quotient
                                         : ChainCode::none;
}

static FusedStep half_step(CastFn kernel, ChainCode code, DType result) {
  FusedStep step = unary_step(kernel);
  step.dtype = result;
  step.itemsize = static_cast<std::int8_t>(itemsize(result));
  if (chain_kernel(DType::f32)) step.code = code;
  return step;
}
FusedStep widen_step() {
  return half_step(cast_kernel(DType::bf16, DType::f32), ChainCode::widen, DType::f32);
}
FusedStep round_step(ChainCode of) {
  FusedStep step = half_step(round_to_bf16_kernel(), ChainCode::to_bf16, DType::f32);
  // These operations turn each NaN that they read into a quiet NaN; max and min return an operand
  // unchanged.
  const bool computes = of == ChainCode::add || of == ChainCode::sub || of == ChainCode::mul ||
                        of == ChainCode::div || of == ChainCode::square || of == ChainCode::sqrt;
  if (step.code == ChainCode::to_bf16 && computes) step.code = ChainCode::quiet_to_bf16;
  return step;
}
FusedStep narrow_step() {
  return half_step(rounded_to_bf16_kernel(), ChainCode::narrow, DType::bf16);
}

HalfUse half_use(const Primitive& primitive, DType operand, DType result) {
  const ElementwiseRow& row = elementwise_row_of(primitive, operand);
  switch (row.form) {
    case Form::convert: {
      const bool kept_in_f32 = operand != DType::f64 && operand != DType::f16;
      const bool in_f32 = result != DType::bf16 || kept_in_f32;  // f64 is rounded once
      return {in_f32, true, in_f32};
    }
    case Form::bits:
      return {false, false};
    case Form::select:
      return {true, false};
    case Form::unary:
      return {true, row.unary() != UnaryOp::neg && row.unary() != UnaryOp::abs};
    default:
      return {true, true};
  }
}

ReduceFn raw_reduction(const Primitive& primitive, DType dtype) {
  const auto op = primitive.reduction;
  const ReduceFn kernel = op ? reduce_kernel(*op, dtype) : nullptr;
  if (!kernel) throw_no_step(primitive, dtype);
  return kernel;
}

ChainFoldFn raw_fold(const Primitive& primitive) {
  const auto op = primitive.reduction;
  return op ? chain_fold_kernel(*op) : nullptr;
}

}  // namespace shmap::cpu
