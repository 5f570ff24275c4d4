// Reductions: dims that go away. Primitives remove the dims that `axes` names; user functions put
// extents of 1 back where their caller wants to keep dims.
#pragma once
#include <optional>

#include "core/base/reduction_ops.h"
#include "core/ir/primitive.h"

namespace shmap {

// reduce_sum_p and its kin, of the rows of core/base/reduction_ops.h. Extrema of no elements are
// the lowest and the highest value of the dtype.
#define SHMAP_DECLARE(name, domain, primitive) extern Primitive primitive##_p;
SHMAP_REDUCTIONS(SHMAP_DECLARE)
#undef SHMAP_DECLARE
// The row that a primitive was made from; none for another primitive.
std::optional<Reduction> reduction_of(const Primitive& primitive);

// ArgReduceParams: the index along one dim; of equal elements the first; a NaN before any number.
extern Primitive argmax_p;
extern Primitive argmin_p;

struct ReduceParams : ParamsOf<ReduceParams> {
  ReduceParams() = default;
  explicit ReduceParams(const Dims& dims) : axes(dims) {}
  Dims axes;  // ascending, from the front
  void visit(ParamVisitor& v) const override { v.value("axes", axes); }
};

struct ArgReduceParams : ParamsOf<ArgReduceParams> {
  ArgReduceParams(const Dims& dims, DType index) : axes(dims), index_dtype(index) {}
  Dims axes;  // one
  DType index_dtype;
  void visit(ParamVisitor& v) const override {
    v.value("axes", axes);
    v.value("index_dtype", index_dtype);
  }
};

// `dims` with those of `axes` left out.
Shape reduced_shape(const Shape& dims, const Dims& axes);

// What user functions reduce over, checked: a ValueError that names dim, rank and line where it
// cannot be. `axis` null: all dims.
Dims reduction_axes(const Dims* axis, int rank, const char* what, SourceLine source);
// Binds `primitive` over the axes; the same handle where there are none. keepdims: extents of 1
// stand where dims were.
Array reduce(const Primitive& primitive, Array x, const Dims& axes, bool keepdims,
             SourceLine source);
// x with extents of 1 put in: at `axes` of the result.
Array keep_dims(Array x, const Dims& axes, SourceLine source);
// sum / count over the axes, of a floating x, in x's dtype.
Array mean_of(Array x, const Dims& axes, bool keepdims, SourceLine source);
// Binds an elementwise primitive of two operands that are promoted and broadcast together first.
Array bind_joint(const Primitive& primitive, Array a, Array b, SourceLine source);
// f16 and bf16 as f32: what means and layers compute in.
DType accumulation_dtype(DType dtype);

}  // namespace shmap
