#include "core/transforms/jit/jit.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/compiler/lowering/closed_program.h"
#include "core/compiler/lowering/eval.h"
#include "core/compiler/lowering/lower.h"
#include "core/compiler/passes/dead_code.h"
#include "core/ir/types_of.h"
#include "core/transforms/jit/cache.h"
#include "core/transforms/jit/planned_entry.h"
#include "core/transforms/jit/planned_trace.h"
#include "core/transforms/jit/rules.h"

namespace shmap {

namespace {

int count_results(Types, const Params& params) {
  return static_cast<int>(params_as<JitParams>(params).jaxpr->outs.size());
}

void eval_jit(Types in, const Params& params, std::span<ShapedArray> out) {
  const Jaxpr& jaxpr = *params_as<JitParams>(params).jaxpr;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].dtype() != jaxpr.binders[i]->type.dtype() ||
        !(in[i].dims() == jaxpr.binders[i]->type.dims())) {
      throw TypeError("jit: operand " + std::to_string(i) + " of type " + to_string(in[i]) +
                      " is given to an argument of type " + to_string(jaxpr.binders[i]->type));
    }
  }
  for (std::size_t o = 0; o < out.size(); ++o) out[o] = jaxpr.outs[o].type();
}

void vary_jit(Types in, const Params& params, const detail::AxisEnv&, std::span<ShapedArray>) {
  const Jaxpr& jaxpr = *params_as<JitParams>(params).jaxpr;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!jaxpr.binders[i]->type.axes().contains(in[i].axes())) {
      throw TypeError("jit: operand " + std::to_string(i) + " of type " + to_string(in[i]) +
                      " is given to an argument of type " + to_string(jaxpr.binders[i]->type));
    }
  }
}

void lower_jit(LowerCall& call) {
  const detail::MeshImpl* over = call.params.mesh();
  if (over && over != call.lowering.mesh())
    throw_other_mesh(over, call.lowering.mesh(), call.source);
  std::vector<LowerValue> results = call.lowering.program(*params_as<JitParams>(call.params).jaxpr,
                                                          {call.in.begin(), call.in.end()});
  std::move(results.begin(), results.end(), call.out.begin());
}

std::shared_ptr<const Params> with_program(const Params& params,
                                           std::span<const JaxprRef> programs) {
  return std::make_shared<JitParams>(programs[0], params.mesh());
}

void prune_jit(PruneCall& call) {
  const JaxprRef& jaxpr = params_as<JitParams>(call.params).jaxpr;
  PrunedJaxpr pruned = prune_jaxpr(*jaxpr, call.wanted, call.memo);
  if (pruned.jaxpr == jaxpr) return;
  call.pruned = std::make_shared<JitParams>(std::move(pruned.jaxpr), call.params.mesh());
  call.kept_in = std::move(pruned.kept);
  call.kept_out = call.wanted;
}

// The plans of a called program (jit_p) that runs eagerly: the program that a transform makes of a
// jitted function (grad(jit(f))) gets plans too.
struct CalledPlans : KeptWithJaxpr::Kept {
  detail::JitCacheImpl entries;
};

void interpret_jit(std::span<Array> in, const Params& params, std::span<Array> out,
                   SourceLine source) {
  const JaxprRef& jaxpr = params_as<JitParams>(params).jaxpr;
  if (params.mesh() && params.mesh()->is_abstract()) {
    throw DeviceError("jit: the mesh " + describe_axes(*params.mesh()->env()) +
                      " is abstract and has no devices, so the program cannot run" +
                      at_line(source));
  }
  detail::FlatTree arguments;
  arguments.leaves.assign(std::make_move_iterator(in.begin()), std::make_move_iterator(in.end()));
  const detail::Scope scope = detail::scope_here();
  std::vector<Array> results;
  // No plan where operands vary over other axes than the program's binders (outside of a body, for
  // example).
  bool planned = scope.kind != detail::Scope::staged && may_be_planned(*jaxpr);
  for (std::size_t i = 0; i < jaxpr->binders.size(); ++i)
    planned =
        planned && node_of(arguments.leaves[i])->type.axes() == jaxpr->binders[i]->type.axes();
  if (!planned) {
    results = eval_jaxpr(*jaxpr, std::move(arguments.leaves));
  } else {
    PerDeviceTrace* const body = detail::body_of(scope);
    if (body) body->admit(arguments.leaves, "jit: an argument", source);
    detail::JitCacheImpl& plans = jaxpr->plans.get<CalledPlans>().entries;
    std::shared_ptr<detail::Entry> entry = plans.find(jaxpr.get(), scope, arguments);
    if (!entry) {
      entry = detail::make_entry(jaxpr.get(), scope, params.mesh(), arguments);
      // A copy, since the program itself owns the entry.
      entry->traced.jaxpr = make_ref<Jaxpr>(*jaxpr);
      entry->out_types = types_of(jaxpr->outs);
      detail::plan_entry(*entry, arguments, body, source);
      plans.insert(entry);
    }
    results = detail::run_entry(*entry, std::move(arguments.leaves), body, source);
  }
  std::move(results.begin(), results.end(), out.begin());
}

}  // namespace

constinit Primitive jit_p = [] {
  Primitive p;
  p.name = "jit";
  p.abstract_eval = eval_jit;
  p.result_count = count_results;
  p.variance = vary_jit;
  p.interpret = interpret_jit;
  p.lower = lower_jit;
  p.programs.inlined = true;
  p.batching = Rule<BatchFn>(batch_jit);
  p.programs.replace = with_program;
  p.programs.prune = prune_jit;
  p.jvp = Rule<JvpFn>(jvp_jit);
  p.transpose = Rule<TransposeFn>(transpose_jit);
  return p;
}();

void JitParams::visit(ParamVisitor& v) const {
  v.value("jaxpr", *jaxpr);
  if (over) v.value("mesh", std::string_view("Mesh(" + describe_axes(*over->env()) + ")"));
}

void register_jit() { register_primitive(jit_p); }

}  // namespace shmap
