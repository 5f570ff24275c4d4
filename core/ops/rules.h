// Rules of the transforms that many primitives share, and helpers for rules.
#pragma once
#include <cstdint>

#include "core/ir/rules.h"

namespace shmap {

// ---- shared rules
// Constants and step functions: no tangents.
void jvp_zero(JvpCall& call);
// Linear in all operands together (reshape, concatenate, psum): applies the primitive to the
// tangents.
void jvp_linear(JvpCall& call);
// Linear in each of two operands (mul, dot_general): the sum of two products.
void jvp_bilinear(JvpCall& call);

// A ViewFn: the result lies where the operand lies, from its first byte on.
std::int64_t view_whole(const ShapedArray& in, const Params& params, const ShapedArray& out);

// Zeros of a type, variance included; of keys, keys whose words are zero.
Array zeros_of(const ShapedArray& type, SourceLine source);
// x, or zeros of the type where it is empty.
Array or_zeros(const Array& x, const ShapedArray& type, SourceLine source);
// a + b; an empty array counts as zero.
Array add_tangents(const Array& a, const Array& b, SourceLine source);
// The cotangent of an operand of an elementwise primitive, from the result's: summed over the dims
// along which the operand was broadcast.
Array unbroadcast(const Array& cotangent, const ShapedArray& operand, SourceLine source);
// Whether values of that dtype have tangents: true for floats.
bool is_differentiable(DType dtype);

}  // namespace shmap
