// Finds attention: replaces the equations of softmax(scale · q kᵀ + bias, masked) v by one equation
// of `attention` (core/ops/attention.h).
#pragma once
#include "core/ir/jaxpr.h"
#include "core/ops/attention.h"

namespace shmap {

// For a simplified program of blocks. Equations that do not match exactly, and attention that
// `takes` refuses, stay; with a null `takes`, all do. Programs inside equations are left as they
// are.
//
//   scores   dot_general of q and k over one dim; then, each at most once and in this order, a
//            scale by a positive literal, the addition of a bias, select_n with one literal;
//            several such selections are masks
//   weights  exp(s - max(s)) / sum(exp(s - max(s))) over k's rows
//   result   dot_general of the weights and v, and a transposition that leaves v's features last
//
// with conversions between the operands' dtype and f32 anywhere. Scores and weights must have no
// other reader: a program with its own backward pass keeps its equations, unless the attention was
// found before it was differentiated (traced_attention.h). Values differ in the last bits from
// those of the equations, whose scores are rounded to their dtype and added in another order; and
// where v is not finite in rows that are masked (attention.h), with which the equations multiply
// weights of 0.
JaxprRef find_attention(const Jaxpr& jaxpr, AttentionCheck takes);

}  // namespace shmap
