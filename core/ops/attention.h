// attention: softmax(scale · q kᵀ + bias, masked) v as one equation, whose scores are never an
// array. It is made of equations of a program as it is planned
// (core/transforms/attention/find_attention.h), for devices that have a kernel for it; on the CPU
// it is also what the function of that name binds, with the primitives of attention_grad.h.
#pragma once
#include <cstdint>
#include <optional>

#include "core/ir/primitive.h"

namespace shmap {

// Operands: q, k, v, then bias and mask where there are. The mask holds bools: where it is false, a
// score is `masked` in place of what it would be. Results: the weighted sums and, with keeps_sums,
// [batch…, 2, row] of f32: of each row the largest score, then the sum of exp(score - largest).
extern Primitive attention_p;

struct AttentionParams : ParamsOf<AttentionParams> {
  // Which dims of q, k, v and the result are [batch…, row, feature]. Those of one place have one
  // extent: batch dims of all; rows of q and the result; rows of k and v, the scores' columns;
  // features of q and k; of v and the result. A batch dim of k and v may be -1 in both: they are
  // the same along it (heads of q that share one of k).
  Dims q_dims, k_dims, v_dims, out_dims;
  // Which dims are [batch…, row of q, row of k]; -1: it is the same along that one. No dims at all:
  // there is no such operand.
  Dims bias_dims, mask_dims;
  double scale = 1, masked = 0;
  // Scores of columns beyond row + causal_offset are `masked` too.
  bool causal = false;
  std::int64_t causal_offset = 0;
  DType out_dtype = DType::f32;  // v's, or f32
  bool keeps_sums = false;
  Dims tangents;  // of attention_tangent (attention_grad.h)
  void visit(ParamVisitor& v) const override;
};

// Of operands whose first ones are attention's: how many those are; the place of the bias and of
// the mask among them, or -1.
std::size_t attention_operands(const AttentionParams& params);
int attention_bias(const AttentionParams& params);
int attention_mask(const AttentionParams& params);
// Checks these operands; the extents of [batch…, row of q, row of k], and of v's features.
// ValueError where they do not fit.
struct AttentionExtents {
  Shape scores;
  std::int64_t depth = 0, v_depth = 0;
};
AttentionExtents attention_extents(Types in, const AttentionParams& params);
// A shape of [batch…, row, feature] in the order that dims say.
Shape attention_shape(const Shape& extents, const Dims& dims);

// Where elements lie: strides, in elements. Of bias and mask 0 where they repeat.
struct AttentionStrides {
  std::int64_t outer = 0, inner = 0, row = 0, column = 0;
};

// One call: operands as [outer, inner, rows, columns].
struct AttentionForm {
  DType dtype = DType::f32, out_dtype = DType::f32;
  std::optional<DType> bias_dtype;
  std::int64_t outer = 1, inner = 1, q_rows = 0, k_rows = 0, depth = 0, v_depth = 0;
  AttentionStrides q, k, v, out, bias, mask;
};

// None where batch dims are not two in all operands alike, where features do not lie together, or
// where there is nothing to compute.
std::optional<AttentionForm> attention_form(Types in, const AttentionParams& params);

// Whether a kernel takes a call.
using AttentionCheck = bool (*)(const AttentionForm&);
// That of the devices of a kind; null where they have no kernel, and where SHMAP_ATTENTION turns it
// off. A backend sets it with its kernel.
AttentionCheck attention_check(DeviceKind kind);
void set_attention_check(DeviceKind kind, AttentionCheck check);

}  // namespace shmap
