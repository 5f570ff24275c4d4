// The derivative of what gamma draws with respect to its parameter.
#pragma once
#include "core/ir/primitive.h"

namespace shmap {

// GammaSampleParams: a sample of the gamma distribution, or its logarithm, and the parameter that
// it was drawn with, both of one shape and float dtype. The result is the sample, a view. Its
// tangent is the parameter's times the slope of the sample where the probability of what is below
// it stays the same (implicit reparametrisation: Figurnov et al., 2018); a tangent of the sample's
// own is added.
extern Primitive random_gamma_sample_p;

struct GammaSampleParams : ParamsOf<GammaSampleParams> {
  bool log_space = false;
  void visit(ParamVisitor& v) const override { v.value("log_space", log_space); }
};

}  // namespace shmap
