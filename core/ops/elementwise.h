// Elementwise primitives: operands of one shape, or scalars, which stand for arrays of the result's
// shape (lax's elementwise ops). Most are made from the rows of core/base/elementwise_ops.h.
#pragma once
#include "core/base/elementwise_ops.h"
#include "core/ir/primitive.h"

namespace shmap {

#define SHMAP_DECLARE(name, ...) extern Primitive name##_p;
SHMAP_UNARY_OPS(SHMAP_DECLARE)
SHMAP_PREDICATE_OPS(SHMAP_DECLARE)
SHMAP_BINARY_OPS(SHMAP_DECLARE)
SHMAP_COMPARE_OPS(SHMAP_DECLARE)
#undef SHMAP_DECLARE

// The row that an elementwise primitive was made from; null for another primitive.
struct ElementwiseRow {
  enum class List : std::uint8_t { unary, binary, compare };
  const char* name;
  Domain domain;
  List list;
  std::uint8_t op;
  UnaryOp unary() const { return static_cast<UnaryOp>(op); }
  BinaryOp binary() const { return static_cast<BinaryOp>(op); }
  CompareOp compare() const { return static_cast<CompareOp>(op); }
};
const ElementwiseRow* elementwise_row(const Primitive& primitive);

extern Primitive select_n_p;              // select_n pred on_false on_true: lax's order
extern Primitive clamp_p;                 // clamp lo x hi
extern Primitive convert_element_type_p;  // ConvertParams
// ConvertParams. A view; to elements of another size with a last dim more or less, which holds one
// wider element's narrow ones.
extern Primitive bitcast_convert_type_p;
extern Primitive stop_gradient_p;  // its operand, without the tangent: a view

struct ConvertParams : ParamsOf<ConvertParams> {
  explicit ConvertParams(DType dtype, bool is_weak = false)
      : new_dtype(dtype), weak_type(is_weak) {}
  DType new_dtype;
  bool weak_type;
  void visit(ParamVisitor& v) const override {
    v.value("new_dtype", new_dtype);
    v.value("weak_type", weak_type);
  }
};

// The shape of an elementwise result: that of the operands which are no scalars. ValueError naming
// `what` where two differ.
const Shape& elementwise_shape(Types in, const char* what);
// Every dim of an operand that is no scalar is the result's factor of that dim.
FactorRule elementwise_sharding(Types in, const Params& params, Types out);

}  // namespace shmap
