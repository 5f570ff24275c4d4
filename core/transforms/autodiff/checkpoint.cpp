#include "core/transforms/autodiff/checkpoint.h"

#include <algorithm>

#include "core/compiler/lowering/lower.h"
#include "core/compiler/passes/dead_code.h"
#include "core/ops/optimization_barrier.h"
#include "core/ops/rules.h"
#include "core/transforms/autodiff/custom_batch.h"
#include "core/transforms/autodiff/custom_rules.h"
#include "core/transforms/autodiff/derivative_args.h"
#include "core/transforms/autodiff/derived.h"
#include "shmap/checkpoint.h"

namespace shmap {

namespace {

CheckpointParams params_of(JaxprRef jaxpr, bool differentiated) {
  CheckpointParams params;
  params.jaxpr = std::move(jaxpr);
  params.differentiated = differentiated;
  return params;
}

template <class Arrays>
void append_given(std::vector<Array>& to, const Arrays& more) {
  for (const Array& x : more)
    if (x.node()) to.push_back(x);
}

// (the inputs that are needed, tangents) -> tangents of the active results. Computes the residuals
// itself.
struct TangentProgram {
  JaxprRef jaxpr;
  std::vector<Array> operands;
  std::vector<bool> active_out;
};

TangentProgram tangent_program(const JaxprRef& program_of, std::span<const Array> primals,
                               std::span<const Array> tangents) {
  const Jaxpr& jaxpr = *program_of;
  const LinearizedProgram parts = *derived_linearization(program_of, given_mask(tangents));
  JaxprTrace trace("checkpoint", jaxpr);
  std::vector<Array> args = parts.primal_consts, directions;
  for (const VarRef& v : jaxpr.binders) args.push_back(trace.argument(v->type));
  for (std::size_t i = 0; i < tangents.size(); ++i)
    if (tangents[i].node()) directions.push_back(trace.argument(jaxpr.binders[i]->type));
  Traced traced;
  {
    TraceScope scope(trace);
    std::vector<Array> values = eval_jaxpr(*parts.primal, std::move(args));
    std::vector<Array> in(values.begin() + static_cast<std::ptrdiff_t>(jaxpr.outs.size()),
                          values.end());
    in.insert(in.end(), directions.begin(), directions.end());
    std::vector<Array> out = eval_jaxpr(*parts.linear, std::move(in));
    traced = trace.build(out, "checkpoint", {});
  }
  PrunedJaxpr pruned =
      prune_jaxpr(*traced.jaxpr, std::vector<bool>(traced.jaxpr->outs.size(), true));
  std::vector<Array> operands = std::move(traced.consts);
  operands.insert(operands.end(), primals.begin(), primals.end());
  append_given(operands, tangents);
  TangentProgram program{std::move(pruned.jaxpr), {}, parts.active_out};
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (pruned.kept[i]) program.operands.push_back(std::move(operands[i]));
  return program;
}

void jvp_checkpoint(JvpCall& call) {
  const auto& p = params_as<CheckpointParams>(call.params);
  const auto n = static_cast<std::ptrdiff_t>(call.out.size());
  std::vector<Array> derivatives;
  std::vector<bool> active_out;
  if (!call.linear) {
    JvpProgram program = *derived_jvp(p.jaxpr, given_mask(call.tangents));
    std::vector<Array> in = std::move(program.consts);
    append_given(in, call.primals);
    append_given(in, call.tangents);
    std::vector<Array> out =
        bind_all(checkpoint_p, in, params_of(program.jaxpr, p.differentiated), call.source);
    std::move(out.begin(), out.begin() + n, call.out.begin());
    derivatives.assign(out.begin() + n, out.end());
    active_out = program.active_out;
  } else {
    call.run();
    TangentProgram program = tangent_program(p.jaxpr, call.primals, call.tangents);
    active_out = program.active_out;
    if (!program.jaxpr->outs.empty())
      derivatives =
          bind_all(checkpoint_p, program.operands, params_of(program.jaxpr, true), call.source);
  }
  for (std::size_t o = 0, next = 0; o < call.out.size(); ++o)
    if (active_out[o]) call.tangents_out[o] = std::move(derivatives[next++]);
}

void transpose_checkpoint(TransposeCall& call) {
  const auto& p = params_as<CheckpointParams>(call.params);
  std::vector<bool> linear = given_mask(call.in);
  linear.flip();
  TransposedProgram program = *derived_transpose(p.jaxpr, linear, given_mask(call.cotangents));
  if (program.jaxpr->outs.empty()) return;
  std::vector<Array> in = std::move(program.consts);
  append_given(in, call.in);
  append_given(in, call.cotangents);
  std::vector<Array> out = bind_all(checkpoint_p, in, params_of(program.jaxpr, true), call.source);
  for (std::size_t i = 0, next = 0; i < call.in.size(); ++i)
    if (program.active_out[i]) call.out[i] = std::move(out[next++]);
}

void batch_checkpoint(BatchCall& call) {
  const auto& p = params_as<CheckpointParams>(call.params);
  BatchedCall batched = batch_called(call, p.jaxpr, 0);
  give(call, batched.operands, params_of(std::move(batched.jaxpr), p.differentiated), 0);
}

// Whether the program recomputes values for a derivative.
bool stays_apart(const Params& params) {
  return params_as<CheckpointParams>(params).differentiated;
}

void lower_checkpoint(LowerCall& call) {
  const auto& p = params_as<CheckpointParams>(call.params);
  std::vector<LowerValue> in(call.in.begin(), call.in.end());
  for (LowerValue& x : in) {
    if (!stays_apart(p) || node_of(x.block)->kind == NodeKind::literal) continue;
    TraceScope scope(call.lowering.trace());
    x.block = bind(optimization_barrier_p, x.block, BarrierParams(), call.source);
  }
  std::vector<LowerValue> results = call.lowering.program(*p.jaxpr, std::move(in));
  std::move(results.begin(), results.end(), call.out.begin());
}

void prune_checkpoint(PruneCall& call) {
  const auto& p = params_as<CheckpointParams>(call.params);
  PrunedJaxpr pruned = prune_jaxpr(*p.jaxpr, call.wanted, call.memo);
  if (pruned.jaxpr == p.jaxpr) return;
  call.pruned =
      std::make_shared<CheckpointParams>(params_of(std::move(pruned.jaxpr), p.differentiated));
  call.kept_in = std::move(pruned.kept);
  call.kept_out = call.wanted;
}

}  // namespace

void CheckpointParams::visit(ParamVisitor& v) const {
  v.value("differentiated", differentiated);
  v.value("jaxpr", *jaxpr);
}

constinit Primitive checkpoint_p = [] {
  Primitive p = called_primitive("checkpoint");
  p.lower = lower_checkpoint;
  p.programs.stays_apart = stays_apart;
  p.programs.replace = with_called_program<CheckpointParams>;
  p.programs.prune = prune_checkpoint;
  p.jvp = Rule<JvpFn>(jvp_checkpoint);
  p.transpose = Rule<TransposeFn>(transpose_checkpoint);
  p.batching = Rule<BatchFn>(batch_checkpoint);
  return p;
}();

void register_checkpoint() { register_primitive(checkpoint_p); }

namespace detail {

std::vector<Array> checkpoint_leaves(BodyRef f, FlatTree arguments, SourceLine source) {
  ensure_started();
  argument_types("checkpoint", arguments, source);
  if (!current_trace().staged() && !current_trace().transforms()) {
    FlatTree result;
    f(arguments.leaves, result);
    return std::move(result.leaves);
  }
  Traced traced = trace_called("checkpoint", f, arguments.leaves, source);
  std::vector<Array> operands = std::move(traced.consts);
  for (Array& x : arguments.leaves) operands.push_back(std::move(x));
  return bind_all(checkpoint_p, operands, params_of(std::move(traced.jaxpr), false), source);
}

}  // namespace detail
}  // namespace shmap
