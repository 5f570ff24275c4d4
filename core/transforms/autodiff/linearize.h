// Linearization (jax.linearize): runs a function at a point, and makes the linear program from
// tangents of the inputs to tangents of the outputs. The primal runs as it would without
// linearization, eagerly where it is called eagerly. Only the linear part is staged, by the JVP
// rules: an operation on primals runs at once, an operation with a tangent operand becomes an
// equation.
#pragma once
#include <vector>

#include "core/transforms/autodiff/jvp.h"

namespace shmap {

// (residuals, tangents of the active inputs) -> tangents of the outputs that are not zero.
struct LinearProgram {
  JaxprRef jaxpr;
  std::vector<Array> residuals;  // values of the trace that was current
  std::vector<bool> active_in;   // of the function's inputs
  std::vector<bool> active_out;  // of the function's outputs: the tangents of all others are zero
  std::vector<ShapedArray> in_types, out_types;

  // From the tangents of all inputs to those of all outputs; an empty tangent is zero.
  std::vector<Array> apply(std::span<const Array> tangents, SourceLine source) const;
  // From the cotangents of all outputs to those of all inputs; an empty cotangent is zero.
  std::vector<Array> transpose(std::span<const Array> cotangents, SourceLine source) const;
};

struct Linearized {
  std::vector<Array> outs;
  LinearProgram linear;
};
// `result` receives the structure of what f returns; its leaves are moved out. what: the transform
// as its user called it ("grad"), for errors; static text. `wanted`: results that get a tangent
// even if it is zero; empty: no such results.
Linearized linearize_of(detail::BodyRef f, std::vector<Array> primals,
                        const std::vector<bool>& active, detail::FlatTree& result,
                        SourceLine source, const char* what = "linearize",
                        const std::vector<bool>& wanted = {});

// A program as two programs: primal: binders -> (results, residuals); linear: (residuals, tangents
// of the active operands) -> tangents of the active results. Closed-over values are the first
// binders, with their values in the consts.
struct LinearizedProgram {
  JaxprRef primal, linear;
  std::vector<Array> primal_consts;
  std::vector<bool> active_out;
};
// `wanted`: results that get a tangent even if it is zero.
LinearizedProgram linearize_program(const Jaxpr& jaxpr, const std::vector<bool>& active,
                                    const std::vector<bool>& wanted = {});

}  // namespace shmap
