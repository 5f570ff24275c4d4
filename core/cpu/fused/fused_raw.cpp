#include "core/cpu/fused/fused_raw.h"

#include <string>

#include "core/cpu/kernels/cast.h"
#include "core/cpu/kernels/compare.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"

namespace shmap::cpu {

namespace {

[[noreturn]] void throw_no_step(const Primitive& primitive, DType dtype) {
  throw TypeError(std::string("fused: there is no kernel of ") + primitive.name + " for " +
                  to_string(dtype) + ": leave it out of fused programs");
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

ChainCode chain_code(const ElementwiseRow& row) {
#define SHMAP_BINARY(name) \
  if (row.binary() == BinaryOp::name) return ChainCode::name;
#define SHMAP_UNARY(name) \
  if (row.unary() == UnaryOp::name) return ChainCode::name;
  if (row.list == ElementwiseRow::List::binary) {
    SHMAP_CHAIN_BINARY(SHMAP_BINARY)
  } else if (row.list == ElementwiseRow::List::unary) {
    SHMAP_CHAIN_UNARY(SHMAP_UNARY)
  }
#undef SHMAP_BINARY
#undef SHMAP_UNARY
  return ChainCode::none;
}

FusedStep row_step(const ElementwiseRow& row, DType operand) {
  switch (row.list) {
    case ElementwiseRow::List::unary:
      return unary_step(unary_kernel(row.unary(), operand));
    case ElementwiseRow::List::binary:
      return binary_step(binary_kernel(row.binary(), operand));
    case ElementwiseRow::List::compare:
      break;
  }
  return binary_step(compare_kernel(row.compare(), operand));
}

}  // namespace

FusedStep raw_step(const Primitive& primitive, DType operand, DType result) {
  FusedStep step;
  const auto found = [&](FusedStep made) {
    if (!made.one) throw_no_step(primitive, operand);
    made.dtype = result;
    made.itemsize = static_cast<std::int8_t>(itemsize(result));
    return made;
  };
  if (const ElementwiseRow* row = primitive.elementwise_row) {
    FusedStep made = found(row_step(*row, operand));
    if (operand == DType::f32 && result == DType::f32 && chain_kernel())
      made.code = chain_code(*row);
    return made;
  }
  if (&primitive == &convert_element_type_p) return found(unary_step(cast_kernel(operand, result)));
  if (&primitive == &bitcast_convert_type_p && itemsize(operand) == itemsize(result))
    return found(unary_step(cast_kernel(result, result)));
  step.dtype = result;
  step.itemsize = static_cast<std::int8_t>(itemsize(result));
  if (&primitive == &select_n_p) {
    step.kind = FusedStep::select;
    return step;
  }
  if (&primitive == &clamp_p) {
    step.kind = FusedStep::clamp;
    return step;
  }
  throw_no_step(primitive, operand);
}

static FusedStep half_step(CastFn kernel, ChainCode code, DType result) {
  FusedStep step = unary_step(kernel);
  step.dtype = result;
  step.itemsize = static_cast<std::int8_t>(itemsize(result));
  if (chain_kernel()) step.code = code;
  return step;
}
FusedStep widen_step() {
  return half_step(cast_kernel(DType::bf16, DType::f32), ChainCode::widen, DType::f32);
}
FusedStep round_step() { return half_step(round_to_bf16_kernel(), ChainCode::round, DType::f32); }
FusedStep round_step(ChainCode of) {
  FusedStep step = round_step();
  // These operations turn each NaN that they read into a quiet NaN; max and min return an operand
  // unchanged.
  const bool computes = of == ChainCode::add || of == ChainCode::sub || of == ChainCode::mul ||
                        of == ChainCode::div || of == ChainCode::square || of == ChainCode::sqrt;
  if (step.code == ChainCode::round && computes) step.code = ChainCode::round_bf16;
  return step;
}
FusedStep narrow_step() {
  return half_step(rounded_to_bf16_kernel(), ChainCode::narrow, DType::bf16);
}

HalfUse half_use(const Primitive& primitive, DType operand, DType result) {
  const auto kept_in_f32 = [](DType t) { return t != DType::f64 && t != DType::f16; };
  if (&primitive == &convert_element_type_p)  // f64 is rounded once
    return {result != DType::bf16 || kept_in_f32(operand), true};
  if (&primitive == &bitcast_convert_type_p) return {false, false};
  return {true, &primitive != &neg_p && &primitive != &abs_p && &primitive != &select_n_p};
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
