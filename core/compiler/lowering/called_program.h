// The rules that are shared by primitives with a program that computes their results: checkpoint,
// custom_jvp_call, custom_vjp_call, overlapped products. Where such an equation is run or lowered,
// the program replaces it.
#pragma once
#include "core/ir/jaxpr.h"

namespace shmap {

struct CalledParams : Params {
  JaxprRef jaxpr;
};
template <class Derived>
struct CalledParamsOf : CalledParams {
  std::unique_ptr<Params> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

// ProgramRules::replace for these primitives.
template <class P>
std::shared_ptr<const Params> with_called_program(const Params& params,
                                                  std::span<const JaxprRef> programs) {
  auto copy = std::make_shared<P>(params_as<P>(params));
  copy->jaxpr = programs[0];
  return copy;
}

int count_called(Types in, const Params& params);
void eval_called(Types in, const Params& params, std::span<ShapedArray> out);
void vary_called(Types in, const Params& params, const detail::AxisEnv& env,
                 std::span<ShapedArray> out);
void interpret_called(std::span<Array> in, const Params& params, std::span<Array> out,
                      SourceLine source);
void lower_called(LowerCall& call);

constexpr Primitive called_primitive(const char* name) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval_called;
  p.result_count = count_called;
  p.variance = vary_called;
  p.interpret = interpret_called;
  p.lower = lower_called;
  p.programs.inlined = true;
  return p;
}

}  // namespace shmap
