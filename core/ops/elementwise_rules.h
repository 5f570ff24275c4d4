// Derivatives of the elementwise primitives: an object with the rules of each, named as the
// primitive.
#pragma once
#include "core/base/elementwise_ops.h"
#include "core/ops/rules.h"

namespace shmap {

// The rules that the rows of core/base/elementwise_ops.h name.
#define SHMAP_RULES_linear(name)  \
  void jvp_##name(JvpCall& call); \
  void transpose_##name(TransposeCall& call);
#define SHMAP_RULES_smooth(name) void jvp_##name(JvpCall& call);
#define SHMAP_RULES_steps(name)
#define SHMAP_RULES_bits(name)
#define SHMAP_RULES(name, domain, work, derivative) SHMAP_RULES_##derivative(name)
SHMAP_UNARY_OPS(SHMAP_RULES)
SHMAP_BINARY_OPS(SHMAP_RULES)
#undef SHMAP_RULES_linear
#undef SHMAP_RULES_smooth
#undef SHMAP_RULES_steps
#undef SHMAP_RULES_bits

void jvp_select_n(JvpCall& call);
void jvp_clamp(JvpCall& call);
void jvp_convert(JvpCall& call);

void transpose_select_n(TransposeCall& call);
void transpose_convert(TransposeCall& call);

struct DerivativeRules {
  Rule<JvpFn> jvp;
  Rule<TransposeFn> transpose = Rule<TransposeFn>::none("it is not linear");
};

namespace elementwise_rules {

// Step functions and constants: the derivative is zero.
inline constexpr DerivativeRules kSteps = {
    jvp_zero, Rule<TransposeFn>::none("its result does not depend linearly on anything")};
inline constexpr DerivativeRules kBits = {
    Rule<JvpFn>::none("it works on bits, and integers and bools have no tangents"),
    Rule<TransposeFn>::none("it works on bits, and integers and bools have no cotangents")};

#define SHMAP_RULES_linear(name) \
  { jvp_##name, transpose_##name }
#define SHMAP_RULES_smooth(name) \
  { jvp_##name }
#define SHMAP_RULES_steps(name) kSteps
#define SHMAP_RULES_bits(name) kBits
#undef SHMAP_RULES
#define SHMAP_RULES(name, domain, work, derivative) \
  inline constexpr DerivativeRules name = SHMAP_RULES_##derivative(name);
SHMAP_UNARY_OPS(SHMAP_RULES)
SHMAP_PREDICATE_OPS(SHMAP_RULES)
SHMAP_BINARY_OPS(SHMAP_RULES)
SHMAP_COMPARE_OPS(SHMAP_RULES)
#undef SHMAP_RULES
#undef SHMAP_RULES_linear
#undef SHMAP_RULES_smooth
#undef SHMAP_RULES_steps
#undef SHMAP_RULES_bits

inline constexpr DerivativeRules select_n = {jvp_select_n, transpose_select_n};
inline constexpr DerivativeRules clamp = {jvp_clamp};
inline constexpr DerivativeRules convert_element_type = {jvp_convert, transpose_convert};
inline constexpr DerivativeRules bitcast_convert_type = kSteps;
inline constexpr DerivativeRules stop_gradient = {
    jvp_zero, Rule<TransposeFn>::none("its result counts as a constant")};

}  // namespace elementwise_rules
}  // namespace shmap
