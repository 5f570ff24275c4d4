// lax.scatter and its variants, which combine updates into an array at computed positions. The
// parameters are those of gather, under lax's names for scatter; scatter_add is the transpose of
// gather.
#pragma once
#include <cstdint>
#include <span>

#include "core/base/slices.h"
#include "core/ir/primitive.h"
#include "core/ir/rules.h"
#include "core/ops/gather_ops.h"

namespace shmap {

// Operands: the array; the indices, whose last dim holds the index vectors; the updates. Updates
// are combined in row-major order of their batch dims, also where they overlap: for equal positions
// scatter keeps the last update, and sums have the same bits on every run. f16 and bf16 are rounded
// after every step. scatter takes every dtype, the others numbers.
#define SHMAP_PRIMITIVE(kind, primitive) extern Primitive primitive;
SHMAP_SCATTERS(SHMAP_PRIMITIVE)
#undef SHMAP_PRIMITIVE

std::span<Primitive* const> scatter_primitives();  // by kind
const Primitive& scatter_primitive(ScatterKind kind);
bool is_scatter(const Primitive& primitive);

struct ScatterAddParams : ParamsOf<ScatterAddParams> {
  Dims update_window_dims;  // of the updates, ascending: the dims of a window
  // of the operand, ascending: dims in which a window has one item
  Dims inserted_window_dims;
  Dims scatter_dims_to_operand_dims;  // the operand's dim for each entry of an index vector
  Dims operand_batching_dims, scatter_indices_batching_dims;
  // a window that is partly out of range is moved inside; otherwise it is dropped
  bool clip = false;
  bool from_end = false;  // see GatherParams::from_end
  void visit(ParamVisitor& v) const override {
    if (from_end) v.value("from_end", true);
    v.value("inserted_window_dims", inserted_window_dims);
    v.value("mode", std::string_view(clip ? "clip" : "drop"));
    v.value("operand_batching_dims", operand_batching_dims);
    v.value("scatter_dims_to_operand_dims", scatter_dims_to_operand_dims);
    v.value("scatter_indices_batching_dims", scatter_indices_batching_dims);
    v.value("update_window_dims", update_window_dims);
  }
};

// Derivatives (scatter_rules.cpp).
void jvp_scatter_linear(JvpCall& call);  // set and add
void jvp_scatter_mul(JvpCall& call);
void jvp_scatter_extremum(JvpCall& call);  // min and max: ties share the derivative
void transpose_scatter_set(TransposeCall& call);
void transpose_scatter_add(TransposeCall& call);

// The parameters of the scatter that writes to the positions from which this gather reads.
ScatterAddParams scatter_of(const GatherParams& gather);

}  // namespace shmap
