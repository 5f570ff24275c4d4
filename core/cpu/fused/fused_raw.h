// Which raw kernels the primitives of a fused program are.
#pragma once
#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// The step of an elementwise primitive, without places: its kind, kernel and dtype. An Error where
// there is none.
FusedStep raw_step(const Primitive& primitive, DType operand, DType result);
// The steps between bf16 and f32: of a chain (chain.h) too.
FusedStep widen_step();  // bf16 -> f32
FusedStep round_step();  // f32 -> the nearest bf16's value, as f32
// The same after an operation on values of bf16; `of`: which one of a chain it is.
FusedStep round_step(ChainCode of);
FusedStep narrow_step();  // such a value -> bf16
// What happens in f32 to operands or results of bf16, whose kernels widen what they read and round
// what they write: `in_f32`. Else it takes the bits of bf16 as they are. `rounds`: whether a result
// may need the rounding.
struct HalfUse {
  bool in_f32 = true, rounds = true;
};
HalfUse half_use(const Primitive& primitive, DType operand, DType result);
// The kernel of a reduction. A TypeError where there is none.
ReduceFn raw_reduction(const Primitive& primitive, DType dtype);
// The kernel that reduces a chain's values of f32; nullptr where there is none.
ChainFoldFn raw_fold(const Primitive& primitive);

}  // namespace shmap::cpu
