// Elementwise primitives: operands of one shape, or scalars, which stand for arrays of the result's
// shape (lax's elementwise ops). The lists below are what registration and the backends' kernels
// are made from.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// Result of the operand's dtype.
#define SHMAP_UNARY_PRIMITIVES(X)                                                                 \
  X(neg)                                                                                          \
  X(abs) X(sign) X(floor) X(ceil) X(round) X(exp) X(expm1) X(log) X(log1p) X(sin) X(cos) X(tan)   \
      X(tanh) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(sqrt) X(rsqrt) X(cbrt) X(logistic) X(erf) \
          X(erf_inv) X(square) X(not_)
// Result bool.
#define SHMAP_PREDICATE_PRIMITIVES(X) X(is_finite)
// Two operands of one dtype, which is the result's too.
#define SHMAP_BINARY_PRIMITIVES(X)                                                          \
  X(add)                                                                                    \
  X(sub) X(mul) X(div) X(rem) X(pow) X(max) X(min) X(atan2) X(bit_and) X(bit_or) X(bit_xor) \
      X(shift_left) X(shift_right_arithmetic) X(shift_right_logical)
// Two operands of one dtype; result bool.
#define SHMAP_COMPARE_PRIMITIVES(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)

#define SHMAP_DECLARE(name) extern Primitive name##_p;
SHMAP_UNARY_PRIMITIVES(SHMAP_DECLARE)
SHMAP_PREDICATE_PRIMITIVES(SHMAP_DECLARE)
SHMAP_BINARY_PRIMITIVES(SHMAP_DECLARE)
SHMAP_COMPARE_PRIMITIVES(SHMAP_DECLARE)
#undef SHMAP_DECLARE

extern Primitive select_n_p;              // select_n pred on_false on_true: lax's order
extern Primitive clamp_p;                 // clamp lo x hi
extern Primitive convert_element_type_p;  // ConvertParams
extern Primitive bitcast_convert_type_p;  // ConvertParams; the itemsizes are equal

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
