// lax.scatter_add: slices added into an array at computed places. The transpose of gather, whose
// parameters it has under lax's names for them.
#pragma once
#include "core/ir/primitive.h"
#include "core/ops/gather_ops.h"

namespace shmap {

// Operands: the array; the indices, whose last dim is the index vector; the updates. Updates are
// added in row-major order of the dims that are no window's, also where they overlap: equal bits on
// every run. f16 and bf16 are rounded after every addition.
extern Primitive scatter_add_p;

struct ScatterAddParams : ParamsOf<ScatterAddParams> {
  Dims update_window_dims;            // of the updates, ascending: dims of a window
  Dims inserted_window_dims;          // of the operand, ascending: a window is one item there
  Dims scatter_dims_to_operand_dims;  // the operand's dim of each entry of an index vector
  Dims operand_batching_dims, scatter_indices_batching_dims;
  bool clip = false;  // a window that leaves the operand is moved inside; else it is dropped
  void visit(ParamVisitor& v) const override {
    v.value("inserted_window_dims", inserted_window_dims);
    v.value("mode", std::string_view(clip ? "clip" : "drop"));
    v.value("operand_batching_dims", operand_batching_dims);
    v.value("scatter_dims_to_operand_dims", scatter_dims_to_operand_dims);
    v.value("scatter_indices_batching_dims", scatter_indices_batching_dims);
    v.value("update_window_dims", update_window_dims);
  }
};

// The scatter that puts back what this gather takes.
ScatterAddParams scatter_of(const GatherParams& gather);

}  // namespace shmap
