// Reductions. Primitives remove the dims in `axes`; user functions restore them with extent 1 where
// keepdims is set.
#pragma once
#include "core/base/reduction_ops.h"
#include "core/ir/primitive.h"

namespace shmap {

// reduce_sum_p and the other rows of core/base/reduction_ops.h. The maximum (minimum) of no
// elements is the lowest (highest) value of the dtype.
#define SHMAP_DECLARE(name, domain, primitive) extern Primitive primitive##_p;
SHMAP_REDUCTIONS(SHMAP_DECLARE)
#undef SHMAP_DECLARE

// ArgReduceParams. The index along one dim: of equal elements the first; a NaN wins over any
// number.
extern Primitive argmax_p;
extern Primitive argmin_p;

struct ReduceParams : ParamsOf<ReduceParams> {
  ReduceParams() = default;
  explicit ReduceParams(const Dims& dims) : axes(dims) {}
  Dims axes;  // ascending, not negative
  void visit(ParamVisitor& v) const override { v.value("axes", axes); }
};

struct ArgReduceParams : ParamsOf<ArgReduceParams> {
  ArgReduceParams(const Dims& dims, DType index) : axes(dims), index_dtype(index) {}
  Dims axes;  // one dim
  DType index_dtype;
  void visit(ParamVisitor& v) const override {
    v.value("axes", axes);
    v.value("index_dtype", index_dtype);
  }
};

// `dims` without those in `axes`.
Shape reduced_shape(const Shape& dims, const Dims& axes);

// The dims over which a user function reduces, checked. ValueError, which names dim, rank and line.
// `axis` null: all dims.
Dims reduction_axes(const Dims* axis, int rank, const char* what, SourceLine source);
// Binds `primitive` over the axes; returns x itself where there are none. keepdims: reduced dims
// stay, with extent 1.
Array reduce(const Primitive& primitive, Array x, const Dims& axes, bool keepdims,
             SourceLine source);
// x with dims of extent 1 inserted at `axes` of the result.
Array keep_dims(Array x, const Dims& axes, SourceLine source);
// sum / count over the axes of a floating-point x, in x's dtype.
Array mean_of(Array x, const Dims& axes, bool keepdims, SourceLine source);
// Promotes and broadcasts two operands, then binds an elementwise primitive.
Array bind_joint(const Primitive& primitive, Array a, Array b, SourceLine source);
// The dtype in which means and layers compute: f32 for f16 and bf16, otherwise the same.
DType accumulation_dtype(DType dtype);

}  // namespace shmap
