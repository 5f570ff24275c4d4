// The raw kernels for the primitives of a fused program.
#pragma once
#include "core/cpu/fused/fused_plan.h"

namespace shmap::cpu {

// The step of an elementwise primitive: its kind, kernel and dtype, without addresses. Throws
// TypeError if the primitive has no kernel.
FusedStep raw_step(const Primitive& primitive, DType operand, DType result);
// The operation of a chain that does what the primitive does, for a second operand that is a
// ChainDivisor; none where the primitive is not a division of 32-bit integers or its remainder.
ChainCode division_code(const Primitive& primitive, DType dtype);
// The steps between bf16 and f32; each may be an operation of a chain (chain.h).
FusedStep widen_step();  // bf16 -> f32
// f32 -> the nearest bf16's value, as f32. of: the operation of a chain that makes the f32 value,
// where all NaNs of its operands are NaNs of bf16; otherwise `none`.
FusedStep round_step(ChainCode of);
FusedStep narrow_step();  // f32 that is already rounded to bf16 -> bf16
// How a primitive treats bf16. in_f32: its kernel widens the operands, computes in f32 and rounds
// the results; otherwise it works on the bits of bf16. rounds: a result may need rounding.
// converts: the result is the operand in another dtype. Throws TypeError if the primitive has no
// kernel.
struct HalfUse {
  bool in_f32 = true, rounds = true, converts = false;
};
HalfUse half_use(const Primitive& primitive, DType operand, DType result);
// The kernel of a reduction. Throws TypeError where there is none.
ReduceFn raw_reduction(const Primitive& primitive, DType dtype);
// The kernel that reduces the f32 values of a chain; nullptr where there is none.
ChainFoldFn raw_fold(const Primitive& primitive);

}  // namespace shmap::cpu
