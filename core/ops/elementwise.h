// Elementwise primitives (lax's elementwise operations). Operands have one shape, or are scalars,
// which are broadcast. Most primitives are made from the rows of core/base/elementwise_ops.h.
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

// How an elementwise operation is computed: Primitive::elementwise_row. An operation with a row may
// become part of a fused program.
struct ElementwiseRow {
  enum class Form : std::uint8_t {
    unary,  // `op` of one of the lists: UnaryOp, BinaryOp, CompareOp
    binary,
    compare,
    select,   // the element of operand 1 or 2 that the bool of operand 0 chooses
    clamp,    // operand 1 between operands 0 and 2
    convert,  // to the result's dtype
    bits,     // the same bytes as the result's dtype: see is_elementwise()
  };
  const char* name;  // of the function in cuda/kernels/embedded/scalar.h
  Form form;
  std::uint8_t op = 0;
  UnaryOp unary() const { return static_cast<UnaryOp>(op); }
  BinaryOp binary() const { return static_cast<BinaryOp>(op); }
  CompareOp compare() const { return static_cast<CompareOp>(op); }
};

extern Primitive select_n_p;              // select_n pred on_false on_true: lax's order
extern Primitive clamp_p;                 // clamp lo x hi
extern Primitive convert_element_type_p;  // ConvertParams
// ConvertParams. A view. A cast to narrower elements adds a last dim, which holds the parts of one
// wide element; a cast to wider elements removes it.
extern Primitive bitcast_convert_type_p;
extern Primitive stop_gradient_p;  // the identity, without a tangent: a view

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

// Whether elements i of the operands give element i of the result, in a call where operand 0 and
// the result have these dtypes. True also of a bitcast to elements of the same size.
inline bool is_elementwise(const Primitive& p, DType operand, DType result) {
  if (p.elementwise) return true;
  return p.elementwise_row != nullptr && p.elementwise_row->form == ElementwiseRow::Form::bits &&
         itemsize(operand) == itemsize(result);
}

// The shape of an elementwise result, which is the shape of the operands that are not scalars.
// ValueError naming `what` if two of these shapes differ.
const Shape& elementwise_shape(Types in, const char* what);
// Each dim is a factor, which the result shares with every operand that is not a scalar.
FactorRule elementwise_sharding(Types in, const Params& params, Types out);

// For functions that consist of several primitives. A host scalar of x's dtype and weakness:
Array number_like(const Array& x, double value, SourceLine source);
// NumPy's where, of operands of one shape and dtype:
Array bind_where(Array pred, Array on_true, Array on_false, SourceLine source);

}  // namespace shmap
