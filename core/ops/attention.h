// attention: softmax(scale · q kᵀ + bias, masked) v as one equation, which stores no array of the
// scores. The pass find_attention (core/compiler/find_attention/find_attention.h) makes it from
// equations of a program, for devices with a kernel for it. On the CPU, the user's function
// attention binds it too, with the primitives of attention_grad.h.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>

#include "core/ir/primitive.h"

namespace shmap {

// Operands: q, k, v, then a bias and a mask, both optional. The mask holds bools: where it is
// false, the score is replaced by `masked`. Results: the weighted sums and, with keeps_sums, an
// array [batch…, 2, row] of f32: for each row the largest score, then the sum of exp(score -
// largest).
//
// Where masked scores have no weight beside the others, their columns need not be read: whether a
// NaN in such a row of k or v reaches the result is not defined.
extern Primitive attention_p;

struct AttentionParams : ParamsOf<AttentionParams> {
  // The dims of q, k, v and the result in the order [batch…, row, feature]. Extents must agree:
  // batch dims of all; rows of q and of the result; rows of k and of v, which are the scores'
  // columns; features of q and of k; features of v and of the result. A batch dim may be -1 in both
  // k and v, which are then the same along it (heads of q that share a head of k).
  Dims q_dims, k_dims, v_dims, out_dims;
  // The dims of bias and mask in the order [batch…, row of q, row of k]; -1 for a dim along which
  // the operand is the same. Empty: there is no such operand.
  Dims bias_dims, mask_dims;
  double scale = 1, masked = 0;  // the scale: is_kernel_scale
  // Scores of columns beyond row + causal_offset are `masked` too.
  bool causal = false;
  std::int64_t causal_offset = 0;
  DType out_dtype = DType::f32;  // the dtype of v, or f32
  bool keeps_sums = false;
  Dims tangents;  // for attention_tangent (attention_grad.h)
  void visit(ParamVisitor& v) const override;
};

// True if kernels can scale scores by it. They do so in f32, in which it must be positive and
// finite.
inline bool is_kernel_scale(double scale) {
  const auto rounded = static_cast<float>(scale);
  return rounded > 0 && std::isfinite(rounded);
}

// The number of attention's own operands, which come first, and the numbers of the bias and of the
// mask among them, or -1.
std::size_t attention_operands(const AttentionParams& params);
int attention_bias(const AttentionParams& params);
int attention_mask(const AttentionParams& params);
// Checks the operands, and returns the extents of [batch…, row of q, row of k] and the numbers of
// features. ValueError where the operands do not fit.
struct AttentionExtents {
  Shape scores;
  std::int64_t depth = 0, v_depth = 0;
};
AttentionExtents attention_extents(Types in, const AttentionParams& params);
// The shape of an array with extents [batch…, row, feature] whose dims are in the order `dims`.
Shape attention_shape(const Shape& extents, const Dims& dims);

// Strides in elements. A bias or mask has stride 0 along dims over which it repeats.
struct AttentionStrides {
  std::int64_t outer = 0, inner = 0, row = 0, column = 0;
};

// One kernel call: operands as [outer, inner, rows, columns].
struct AttentionForm {
  DType dtype = DType::f32, out_dtype = DType::f32;
  std::optional<DType> bias_dtype;
  std::int64_t outer = 1, inner = 1, q_rows = 0, k_rows = 0, depth = 0, v_depth = 0;
  AttentionStrides q, k, v, out, bias, mask;
};

// Nothing where the batch dims cannot be merged into two in all operands alike, where features are
// not contiguous, or where there are no elements.
std::optional<AttentionForm> attention_form(Types in, const AttentionParams& params);

// True if a kernel accepts the call.
using AttentionCheck = bool (*)(const AttentionForm&);
// The check of the backend (DeviceOps::attends). Null if the backend has no kernel for attention,
// or SHMAP_ATTENTION turns it off.
AttentionCheck attention_check(DeviceKind kind);

}  // namespace shmap
