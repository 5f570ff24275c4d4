#include "core/compiler/lowering/called_program.h"

#include "core/compiler/lowering/lower.h"
#include "core/tracing/make_jaxpr.h"

namespace shmap {

namespace {

const Jaxpr& called(const Params& params) { return *params_as<CalledParams>(params).jaxpr; }

[[noreturn]] void throw_operand(std::size_t i, const ShapedArray& given,
                                const ShapedArray& wanted) {
  throw TypeError("a called program: operand " + std::to_string(i) + " has type " +
                  to_string(given) + ", and the program takes " + to_string(wanted));
}

}  // namespace

int count_called(Types, const Params& params) {
  return static_cast<int>(called(params).outs.size());
}

void eval_called(Types in, const Params& params, std::span<ShapedArray> out) {
  const Jaxpr& jaxpr = called(params);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const ShapedArray& wanted = jaxpr.binders[i]->type;
    if (in[i].dtype() != wanted.dtype() || !(in[i].dims() == wanted.dims()))
      throw_operand(i, in[i], wanted);
  }
  for (std::size_t o = 0; o < out.size(); ++o) out[o] = jaxpr.outs[o].type();
}

void vary_called(Types in, const Params& params, const detail::AxisEnv&, std::span<ShapedArray>) {
  const Jaxpr& jaxpr = called(params);
  for (std::size_t i = 0; i < in.size(); ++i)
    if (!jaxpr.binders[i]->type.axes().contains(in[i].axes()))
      throw_operand(i, in[i], jaxpr.binders[i]->type);
}

void interpret_called(std::span<Array> in, const Params& params, std::span<Array> out, SourceLine) {
  std::vector<Array> args(std::make_move_iterator(in.begin()), std::make_move_iterator(in.end()));
  std::vector<Array> results = eval_jaxpr(called(params), std::move(args));
  std::move(results.begin(), results.end(), out.begin());
}

void lower_called(LowerCall& call) {
  std::vector<LowerValue> results =
      call.lowering.program(called(call.params), {call.in.begin(), call.in.end()});
  std::move(results.begin(), results.end(), call.out.begin());
}

}  // namespace shmap
