// Transposition of linear programs (autodidax's eval_jaxpr_transposed; jax's backward_pass).
#pragma once
#include <vector>

#include "core/ops/rules.h"
#include "core/tracing/make_jaxpr.h"

namespace shmap {

// From cotangents of the results (empty: zero) to cotangents of the binders that have no value in
// `args`. All other entries are empty, and so are cotangents that are zero. Runs under the current
// trace: equations that do not depend on a linear binder are evaluated first, then the linear
// equations are transposed from last to first. TypeError where an equation is not linear, or its
// primitive has no transpose rule.
std::vector<Array> backward_pass(const Jaxpr& jaxpr, std::vector<Array> args,
                                 std::vector<Array> cotangents);

// A linear program transposed: (known args, cotangents of the results in `given`) -> cotangents of
// the linear binders in `active_out`.
struct TransposedProgram {
  JaxprRef jaxpr;
  std::vector<Array> consts;
  // For each binder: whether it is linear and its cotangent is not zero.
  std::vector<bool> active_out;
};
// `wanted`: binders that get a cotangent even if it is zero; empty: no such binders.
TransposedProgram transpose_program(const Jaxpr& jaxpr, const std::vector<bool>& linear,
                                    const std::vector<bool>& given,
                                    const std::vector<bool>& wanted = {});

// The transpose rule of called programs (core/compiler/lowering/called_program.h): replaces the
// equation by its program, transposed.
void transpose_called(TransposeCall& call);

}  // namespace shmap
