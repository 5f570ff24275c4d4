// Elementwise primitives: operands of one shape, or scalars, which stand for arrays of the result's
// shape (lax's elementwise ops). The lists below are what registration and the backends' kernels
// are made from: names, each with the dtypes that it takes.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

enum class Domain : std::uint8_t {
  floats,
  integers,
  numbers,  // integers and floats
  bits,     // integers and bool
  plain,    // all of these: every dtype but prng_key
};
bool in_domain(DType dtype, Domain domain);

// clang-format off
// Result of the operand's dtype.
#define SHMAP_UNARY_PRIMITIVES(X)                                                               \
  X(neg, numbers) X(abs, numbers) X(sign, numbers) X(square, numbers) X(not_, bits)             \
  X(floor, floats) X(ceil, floats) X(round, floats) X(exp, floats) X(expm1, floats)             \
  X(log, floats) X(log1p, floats) X(sin, floats) X(cos, floats) X(tan, floats) X(tanh, floats)  \
  X(asin, floats) X(acos, floats) X(atan, floats) X(sinh, floats) X(cosh, floats)               \
  X(sqrt, floats) X(rsqrt, floats) X(cbrt, floats) X(logistic, floats) X(erf, floats)           \
  X(erf_inv, floats)
// Result bool.
#define SHMAP_PREDICATE_PRIMITIVES(X) X(is_finite, floats)
// Two operands of one dtype, which is the result's too.
#define SHMAP_BINARY_PRIMITIVES(X)                                                              \
  X(add, numbers) X(sub, numbers) X(mul, numbers) X(div, numbers) X(rem, numbers)               \
  X(pow, numbers) X(max, plain) X(min, plain) X(atan2, floats)                                  \
  X(bit_and, bits) X(bit_or, bits) X(bit_xor, bits) X(shift_left, integers)                     \
  X(shift_right_arithmetic, integers) X(shift_right_logical, integers)
// Two operands of one dtype; result bool.
#define SHMAP_COMPARE_PRIMITIVES(X)                                                             \
  X(eq, plain) X(ne, plain) X(lt, plain) X(le, plain) X(gt, plain) X(ge, plain)
// clang-format on

#define SHMAP_DECLARE(name, domain) extern Primitive name##_p;
SHMAP_UNARY_PRIMITIVES(SHMAP_DECLARE)
SHMAP_PREDICATE_PRIMITIVES(SHMAP_DECLARE)
SHMAP_BINARY_PRIMITIVES(SHMAP_DECLARE)
SHMAP_COMPARE_PRIMITIVES(SHMAP_DECLARE)
#undef SHMAP_DECLARE

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
