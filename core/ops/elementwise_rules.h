// Derivatives of the elementwise primitives: for each its rules, under its name.
#pragma once
#include "core/ops/rules.h"

namespace shmap {

void jvp_abs(JvpCall& call);
void jvp_square(JvpCall& call);
void jvp_exp(JvpCall& call);
void jvp_expm1(JvpCall& call);
void jvp_log(JvpCall& call);
void jvp_log1p(JvpCall& call);
void jvp_sin(JvpCall& call);
void jvp_cos(JvpCall& call);
void jvp_tan(JvpCall& call);
void jvp_tanh(JvpCall& call);
void jvp_asin(JvpCall& call);
void jvp_acos(JvpCall& call);
void jvp_atan(JvpCall& call);
void jvp_sinh(JvpCall& call);
void jvp_cosh(JvpCall& call);
void jvp_sqrt(JvpCall& call);
void jvp_rsqrt(JvpCall& call);
void jvp_cbrt(JvpCall& call);
void jvp_logistic(JvpCall& call);
void jvp_erf(JvpCall& call);
void jvp_erf_inv(JvpCall& call);
void jvp_add(JvpCall& call);
void jvp_sub(JvpCall& call);
void jvp_div(JvpCall& call);
void jvp_rem(JvpCall& call);
void jvp_pow(JvpCall& call);
void jvp_max(JvpCall& call);
void jvp_min(JvpCall& call);
void jvp_atan2(JvpCall& call);
void jvp_select_n(JvpCall& call);
void jvp_clamp(JvpCall& call);
void jvp_convert(JvpCall& call);

void transpose_neg(TransposeCall& call);
void transpose_add(TransposeCall& call);
void transpose_sub(TransposeCall& call);
void transpose_mul(TransposeCall& call);
void transpose_div(TransposeCall& call);
void transpose_select_n(TransposeCall& call);
void transpose_convert(TransposeCall& call);

struct DerivativeRules {
  Rule<JvpFn> jvp;
  Rule<TransposeFn> transpose = Rule<TransposeFn>::none("it is not linear");
};

namespace elementwise_rules {

// Results that jump, or are constant between jumps.
inline constexpr DerivativeRules kSteps = {
    jvp_zero, Rule<TransposeFn>::none("its result does not depend linearly on anything")};
inline constexpr DerivativeRules kBits = {
    Rule<JvpFn>::none("it works on bits, and integers and bools have no tangents"),
    Rule<TransposeFn>::none("it works on bits, and integers and bools have no cotangents")};

inline constexpr DerivativeRules neg = {jvp_linear, transpose_neg};
inline constexpr DerivativeRules abs = {jvp_abs};
inline constexpr DerivativeRules sign = kSteps;
inline constexpr DerivativeRules square = {jvp_square};
inline constexpr DerivativeRules not_ = kBits;
inline constexpr DerivativeRules floor = kSteps;
inline constexpr DerivativeRules ceil = kSteps;
inline constexpr DerivativeRules round = kSteps;
inline constexpr DerivativeRules exp = {jvp_exp};
inline constexpr DerivativeRules expm1 = {jvp_expm1};
inline constexpr DerivativeRules log = {jvp_log};
inline constexpr DerivativeRules log1p = {jvp_log1p};
inline constexpr DerivativeRules sin = {jvp_sin};
inline constexpr DerivativeRules cos = {jvp_cos};
inline constexpr DerivativeRules tan = {jvp_tan};
inline constexpr DerivativeRules tanh = {jvp_tanh};
inline constexpr DerivativeRules asin = {jvp_asin};
inline constexpr DerivativeRules acos = {jvp_acos};
inline constexpr DerivativeRules atan = {jvp_atan};
inline constexpr DerivativeRules sinh = {jvp_sinh};
inline constexpr DerivativeRules cosh = {jvp_cosh};
inline constexpr DerivativeRules sqrt = {jvp_sqrt};
inline constexpr DerivativeRules rsqrt = {jvp_rsqrt};
inline constexpr DerivativeRules cbrt = {jvp_cbrt};
inline constexpr DerivativeRules logistic = {jvp_logistic};
inline constexpr DerivativeRules erf = {jvp_erf};
inline constexpr DerivativeRules erf_inv = {jvp_erf_inv};

inline constexpr DerivativeRules is_finite = kSteps;

inline constexpr DerivativeRules add = {jvp_add, transpose_add};
inline constexpr DerivativeRules sub = {jvp_sub, transpose_sub};
inline constexpr DerivativeRules mul = {jvp_bilinear, transpose_mul};
inline constexpr DerivativeRules div = {jvp_div, transpose_div};
inline constexpr DerivativeRules rem = {jvp_rem};
inline constexpr DerivativeRules pow = {jvp_pow};
inline constexpr DerivativeRules max = {jvp_max};
inline constexpr DerivativeRules min = {jvp_min};
inline constexpr DerivativeRules atan2 = {jvp_atan2};
inline constexpr DerivativeRules bit_and = kBits;
inline constexpr DerivativeRules bit_or = kBits;
inline constexpr DerivativeRules bit_xor = kBits;
inline constexpr DerivativeRules shift_left = kBits;
inline constexpr DerivativeRules shift_right_arithmetic = kBits;
inline constexpr DerivativeRules shift_right_logical = kBits;

inline constexpr DerivativeRules eq = kSteps;
inline constexpr DerivativeRules ne = kSteps;
inline constexpr DerivativeRules lt = kSteps;
inline constexpr DerivativeRules le = kSteps;
inline constexpr DerivativeRules gt = kSteps;
inline constexpr DerivativeRules ge = kSteps;

inline constexpr DerivativeRules select_n = {jvp_select_n, transpose_select_n};
inline constexpr DerivativeRules clamp = {jvp_clamp};
inline constexpr DerivativeRules convert_element_type = {jvp_convert, transpose_convert};
inline constexpr DerivativeRules bitcast_convert_type = kSteps;
inline constexpr DerivativeRules stop_gradient = {
    jvp_zero, Rule<TransposeFn>::none("its result counts as a constant")};

}  // namespace elementwise_rules
}  // namespace shmap
