// lax.scatter and its kin: slices combined into an array at computed places. The parameters are
// those of gather, under lax's names for them; scatter_add is gather's transpose.
#pragma once
#include "core/ir/primitive.h"
#include "core/ir/rules.h"
#include "core/ops/gather_ops.h"

namespace shmap {

// Operands: the array; the indices, whose last dim is the index vector; the updates. Updates are
// combined in row-major order of the dims that are no window's, also where they overlap: of equal
// places scatter keeps the last, and sums are of equal bits on every run. f16 and bf16 are rounded
// after every step. scatter takes every dtype, the others numbers.
extern Primitive scatter_p, scatter_add_p, scatter_mul_p, scatter_min_p, scatter_max_p;

struct ScatterAddParams : ParamsOf<ScatterAddParams> {
  Dims update_window_dims;            // of the updates, ascending: dims of a window
  Dims inserted_window_dims;          // of the operand, ascending: a window is one item there
  Dims scatter_dims_to_operand_dims;  // the operand's dim of each entry of an index vector
  Dims operand_batching_dims, scatter_indices_batching_dims;
  bool clip = false;      // a window that leaves the operand is moved inside; else it is dropped
  bool from_end = false;  // as GatherParams'
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

// How updates are combined with what is there.
enum class ScatterKind : std::uint8_t { set, add, mul, min, max };
const Primitive& scatter_primitive(ScatterKind kind);
ScatterKind kind_of_scatter(const Primitive& primitive);

// Derivatives (scatter_rules.cpp).
void jvp_scatter_linear(JvpCall& call);  // set and add
void jvp_scatter_mul(JvpCall& call);
void jvp_scatter_extremum(JvpCall& call);  // min and max: ties share
void transpose_scatter_set(TransposeCall& call);
void transpose_scatter_add(TransposeCall& call);

// The scatter that puts back what this gather takes.
ScatterAddParams scatter_of(const GatherParams& gather);

}  // namespace shmap
