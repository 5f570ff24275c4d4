// Derivatives of the shape primitives (core/ops/shape.cpp), slices (core/ops/slicing.cpp) and
// products (core/ops/dot.cpp). All of them are linear in the operands that are not indices.
#pragma once
#include "core/ir/rules.h"

namespace shmap {

void transpose_broadcast(TransposeCall& call);
void transpose_reshape(TransposeCall& call);
void transpose_transpose(TransposeCall& call);
void transpose_rev(TransposeCall& call);
void transpose_concatenate(TransposeCall& call);
void transpose_pad(TransposeCall& call);

// Linear in the first `linear` operands together; the others are indices.
void jvp_linear_in(JvpCall& call, std::size_t linear);
void jvp_dynamic_slice(JvpCall& call);
void jvp_dynamic_update_slice(JvpCall& call);
void transpose_slice(TransposeCall& call);
void transpose_dynamic_slice(TransposeCall& call);
void transpose_dynamic_update_slice(TransposeCall& call);

void transpose_dot(TransposeCall& call);

}  // namespace shmap
