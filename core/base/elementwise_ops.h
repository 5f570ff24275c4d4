// The elementwise operations, one row for each. The primitives, the kernels of every backend, fused
// programs and the functions that users call are generated from these rows.
//
//   X(name, domain, work, derivative)
//
//   name        of the primitive name_p, of the enumerator below, and of the function in
//               cuda/kernels/embedded/scalar.h
//   domain      the dtypes that the operation takes (Domain)
//   work        light: a few instructions for each element; heavy: tens of them (Work)
//   derivative  smooth: jvp_<name> is the JVP rule (core/ops/elementwise_rules.cpp)
//               linear: jvp_<name>, and transpose_<name> is the transpose rule
//               steps:  the tangent is 0
//               bits:   takes integers and bools, which have no tangents
#pragma once
#include <cstdint>

#include "core/base/op_domain.h"

namespace shmap {

enum class Work : std::uint8_t { light, heavy };

// clang-format off
// Functions that users call under these names; for integers they compute in the default float
// dtype.
#define SHMAP_FLOAT_FUNCTIONS(X)                                                                  \
  X(exp, floats, heavy, smooth)    X(exp2, floats, heavy, smooth)   X(expm1, floats, heavy, smooth) \
  X(log, floats, heavy, smooth)    X(log1p, floats, heavy, smooth)                                \
  X(sin, floats, heavy, smooth)    X(cos, floats, heavy, smooth)    X(tan, floats, heavy, smooth) \
  X(asin, floats, heavy, smooth)   X(acos, floats, heavy, smooth)   X(atan, floats, heavy, smooth) \
  X(sinh, floats, heavy, smooth)   X(cosh, floats, heavy, smooth)   X(tanh, floats, heavy, smooth) \
  X(asinh, floats, heavy, smooth)  X(acosh, floats, heavy, smooth)  X(atanh, floats, heavy, smooth) \
  X(sqrt, floats, light, smooth)   X(rsqrt, floats, light, smooth)  X(cbrt, floats, heavy, smooth) \
  X(erf, floats, heavy, smooth)    X(erfc, floats, heavy, smooth)   X(erf_inv, floats, heavy, smooth) \
  X(logistic, floats, heavy, smooth)

// One operand; the result has its dtype.
#define SHMAP_UNARY_OPS(X)                                                                        \
  X(neg, numbers, light, linear)   X(abs, numbers, light, smooth)   X(sign, numbers, light, steps) \
  X(square, numbers, light, smooth)                                                               \
  X(floor, floats, light, steps)   X(ceil, floats, light, steps)    X(round, floats, light, steps) \
  X(not_, bits, light, bits)       X(population_count, integers, light, bits)                     \
  X(clz, integers, light, bits)                                                                   \
  SHMAP_FLOAT_FUNCTIONS(X)
// One operand; the result is bool.
#define SHMAP_PREDICATE_OPS(X) X(is_finite, floats, light, steps)
// Two operands of one dtype, which is also the dtype of the result.
#define SHMAP_BINARY_OPS(X)                                                                       \
  X(add, numbers, light, linear)   X(sub, numbers, light, linear)   X(mul, numbers, light, linear) \
  X(div, numbers, light, linear)   X(rem, numbers, heavy, smooth)   X(pow, numbers, heavy, smooth) \
  X(max, plain, light, smooth)     X(min, plain, light, smooth)     X(atan2, floats, heavy, smooth) \
  X(bit_and, bits, light, bits)    X(bit_or, bits, light, bits)     X(bit_xor, bits, light, bits) \
  X(shift_left, integers, light, bits)                                                            \
  X(shift_right_arithmetic, integers, light, bits)                                                \
  X(shift_right_logical, integers, light, bits)
// Two operands of one dtype; the result is bool.
#define SHMAP_COMPARE_OPS(X)                                                                      \
  X(eq, plain, light, steps) X(ne, plain, light, steps) X(lt, plain, light, steps)                \
  X(le, plain, light, steps) X(gt, plain, light, steps) X(ge, plain, light, steps)
// clang-format on

#define SHMAP_ENUMERATOR(name, domain, work, derivative) name,
#define SHMAP_ONE(name, domain, work, derivative) +1
enum class UnaryOp : std::uint8_t {
  SHMAP_UNARY_OPS(SHMAP_ENUMERATOR) SHMAP_PREDICATE_OPS(SHMAP_ENUMERATOR)
};
enum class BinaryOp : std::uint8_t { SHMAP_BINARY_OPS(SHMAP_ENUMERATOR) };
enum class CompareOp : std::uint8_t { SHMAP_COMPARE_OPS(SHMAP_ENUMERATOR) };
inline constexpr int kUnaryOpCount = SHMAP_UNARY_OPS(SHMAP_ONE) SHMAP_PREDICATE_OPS(SHMAP_ONE);
inline constexpr int kBinaryOpCount = SHMAP_BINARY_OPS(SHMAP_ONE);
inline constexpr int kCompareOpCount = SHMAP_COMPARE_OPS(SHMAP_ONE);
#undef SHMAP_ENUMERATOR
#undef SHMAP_ONE

// Whether the result of a unary operation is bool.
constexpr bool is_predicate(UnaryOp op) { return op >= UnaryOp::is_finite; }

// SHMAP_IF_FLOATS_<domain>(text): the text, where the domain has floats; else nothing.
#define SHMAP_IF_FLOATS_floats(...) __VA_ARGS__
#define SHMAP_IF_FLOATS_numbers(...) __VA_ARGS__
#define SHMAP_IF_FLOATS_plain(...) __VA_ARGS__
#define SHMAP_IF_FLOATS_integers(...)
#define SHMAP_IF_FLOATS_bits(...)

}  // namespace shmap
