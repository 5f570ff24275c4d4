// The primitive that gives gamma samples their derivative with respect to their parameter. That
// derivative is a program with loops: core/random/gamma_derivative.cpp registers it.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// GammaSampleParams. Operands: samples of the gamma distribution (or their logarithms) and the
// parameters that they were drawn with, of one shape and float dtype. The result is the samples, as
// a view. Its tangent is the parameter's tangent times the slope of the sample at constant
// cumulative probability (implicit reparametrisation: Figurnov et al., 2018), plus the samples' own
// tangent.
extern Primitive random_gamma_sample_p;

struct GammaSampleParams : ParamsOf<GammaSampleParams> {
  bool log_space = false;
  void visit(ParamVisitor& v) const override { v.value("log_space", log_space); }
};

}  // namespace shmap
