// Linearization (jax.linearize): a function run at a point, and the linear program that takes
// tangents of the inputs to those of the outputs. The primal runs as it would alone, eagerly where
// it is eager; only the linear part is staged, by the JVP rules: an op on primals runs at once, one
// that has a tangent operand becomes an equation.
#pragma once
#include <vector>

#include "core/transforms/autodiff/jvp.h"

namespace shmap {

// (residuals, tangents of the active inputs) -> tangents of the outputs that are not zero.
struct LinearProgram {
  JaxprRef jaxpr;
  std::vector<Array> residuals;  // values of the trace that was current
  std::vector<bool> active_in;   // of the function's inputs
  std::vector<bool> active_out;  // of its outputs: others' tangents are zero
  std::vector<ShapedArray> in_types, out_types;

  // The tangents of all outputs; an empty one is zero. `tangents`: of all inputs.
  std::vector<Array> apply(std::span<const Array> tangents, SourceLine source) const;
  // The cotangents of all inputs from those of all outputs; an empty one is zero.
  std::vector<Array> transpose(std::span<const Array> cotangents, SourceLine source) const;
};

struct Linearized {
  std::vector<Array> outs;
  LinearProgram linear;
};
// `result` gets the structure of what f returns; its leaves are moved out. what: the transform as
// its user called it ("grad"), for errors; the string lives for ever. `wanted`: results that have a
// tangent in any case, zeros; none where it is empty.
Linearized linearize_of(detail::BodyRef f, std::vector<Array> primals,
                        const std::vector<bool>& active, detail::FlatTree& result,
                        SourceLine source, const char* what = "linearize",
                        const std::vector<bool>& wanted = {});

// A program as two: primal: binders -> (results, residuals); linear: (residuals, tangents of the
// active operands) -> tangents of the active results. What they capture comes first, as consts.
struct LinearizedProgram {
  JaxprRef primal, linear;
  std::vector<Array> primal_consts;
  std::vector<bool> active_out;
};
// `wanted`: results that have a tangent in any case.
LinearizedProgram linearize_program(const Jaxpr& jaxpr, const std::vector<bool>& active,
                                    const std::vector<bool>& wanted = {});

}  // namespace shmap
