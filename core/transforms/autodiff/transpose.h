// Transposition of linear programs (autodidax's eval_jaxpr_transposed; jax's backward_pass).
#pragma once
#include <vector>

#include "core/ops/rules.h"
#include "core/transforms/tracing/make_jaxpr.h"

namespace shmap {

// From cotangents of the results (empty: zero) to those of the binders that have no value in
// `args`; others' stay empty, and so do those that are zero. Runs under the current trace: what
// does not depend on a linear binder is evaluated first, then the equations backwards. TypeError
// where an equation is not linear, or its primitive has no rule.
std::vector<Array> backward_pass(const Jaxpr& jaxpr, std::vector<Array> args,
                                 std::vector<Array> cotangents);

// A linear program transposed: (known args, cotangents of the results in `given`) -> cotangents of
// the linear binders in `active_out`.
struct TransposedProgram {
  JaxprRef jaxpr;
  std::vector<Array> consts;
  std::vector<bool> active_out;  // of all binders: linear, and its cotangent is not zero
};
// `wanted`: binders whose cotangent is given in any case (zeros); none where it is empty.
TransposedProgram transpose_program(const Jaxpr& jaxpr, const std::vector<bool>& linear,
                                    const std::vector<bool>& given,
                                    const std::vector<bool>& wanted = {});

}  // namespace shmap
