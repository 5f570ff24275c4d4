// Rules of the transforms that many primitives share, and what rules are written with.
#pragma once
#include "core/ir/rules.h"

namespace shmap {

// ---- rules that many primitives have
// Results that do not change with the operands, or only in jumps: no tangents.
void jvp_zero(JvpCall& call);
// Linear in all operands together (reshape, concatenate, psum): the primitive itself, on tangents.
void jvp_linear(JvpCall& call);
// Linear in each of two operands (mul, dot_general): the sum of both.
void jvp_bilinear(JvpCall& call);

// Zeros of a type, variance too.
Array zeros_of(const ShapedArray& type, SourceLine source);
// x, or zeros of the type where it is empty.
Array or_zeros(const Array& x, const ShapedArray& type, SourceLine source);
// a + b, of which either may be empty: zero.
Array add_tangents(const Array& a, const Array& b, SourceLine source);
// The cotangent of an operand that an elementwise primitive took to the result's shape: summed over
// what a scalar was repeated along.
Array unbroadcast(const Array& cotangent, const ShapedArray& operand, SourceLine source);
// Whether values of that dtype have tangents: floats.
bool is_differentiable(DType dtype);

}  // namespace shmap
