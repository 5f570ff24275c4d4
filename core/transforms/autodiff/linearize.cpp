#include "core/transforms/autodiff/linearize.h"

#include "core/tracing/jaxpr_body.h"
#include "core/transforms/autodiff/transpose.h"

namespace shmap {

namespace {

// Options of a linear program over `here`: operations without a tangent run under `here`.
StagingOptions linear_options(Trace& here) {
  StagingOptions options;
  options.below = &here;
  // The host must not wait for scalars that a device may still be computing.
  options.inline_scalars = false;
  options.check_variance = here.checks_variance();
  options.auto_pbroadcast = here.auto_pbroadcast();
  return options;
}

}  // namespace

Linearized linearize_of(detail::BodyRef f, std::vector<Array> primals,
                        const std::vector<bool>& active, detail::FlatTree& result,
                        SourceLine source, const char* what, const std::vector<bool>& wanted) {
  ensure_started();
  Linearized out;
  LinearProgram& linear = out.linear;
  for (const Array& x : primals)
    linear.in_types.push_back(checked_node(x, "linearize", source).type);
  linear.active_in = active;
  Trace& here = current_trace();
  JaxprTrace program("linearize", env_for(linear.in_types), linear_options(here));
  JvpTrace trace(here, &program, 0, what, source);
  std::vector<Array> args;
  for (std::size_t i = 0; i < primals.size(); ++i) {
    args.push_back(active[i] ? trace.dual(std::move(primals[i]),
                                          program.argument(linear.in_types[i]), "linearize", source)
                             : std::move(primals[i]));
  }
  {
    TraceScope scope(trace);
    f(args, result);
    args.clear();
  }
  std::vector<Array> tangents;
  for (std::size_t o = 0; o < result.leaves.size(); ++o) {
    auto [primal, tangent] = trace.split(result.leaves[o]);
    if (!tangent.node() && !wanted.empty() && wanted[o]) {
      TraceScope scope(program);
      tangent = zeros_of(node_of(primal)->type, source);
    }
    linear.out_types.push_back(checked_node(primal, "linearize: a result", source).type);
    linear.active_out.push_back(tangent.node() != nullptr);
    if (tangent.node()) tangents.push_back(std::move(tangent));
    out.outs.push_back(std::move(primal));
  }
  result.leaves.clear();
  Traced traced = program.build(tangents, "linearize", source);
  linear.jaxpr = std::move(traced.jaxpr);
  linear.residuals = std::move(traced.consts);
  return out;
}

std::vector<Array> LinearProgram::apply(std::span<const Array> tangents, SourceLine source) const {
  std::vector<Array> args = residuals;
  for (std::size_t i = 0; i < active_in.size(); ++i)
    if (active_in[i]) args.push_back(or_zeros(tangents[i], in_types[i], source));
  std::vector<Array> results = eval_jaxpr(*jaxpr, std::move(args)), out;
  std::size_t next = 0;
  for (const bool is_active : active_out)
    out.push_back(is_active ? std::move(results[next++]) : Array());
  return out;
}

std::vector<Array> LinearProgram::transpose(std::span<const Array> cotangents, SourceLine) const {
  std::vector<Array> args = residuals;
  args.resize(jaxpr->binders.size());
  std::vector<Array> given;
  for (std::size_t o = 0; o < active_out.size(); ++o)
    if (active_out[o]) given.push_back(cotangents[o]);
  std::vector<Array> results = backward_pass(*jaxpr, std::move(args), std::move(given)), out;
  std::size_t next = residuals.size();
  for (const bool is_active : active_in)
    out.push_back(is_active ? std::move(results[next++]) : Array());
  return out;
}

LinearizedProgram linearize_program(const Jaxpr& jaxpr, const std::vector<bool>& active,
                                    const std::vector<bool>& wanted) {
  JaxprTrace trace("linearize", jaxpr);
  std::vector<Array> primals;
  for (const VarRef& v : jaxpr.binders) primals.push_back(trace.argument(v->type));
  TraceScope scope(trace);
  JaxprBody body(jaxpr, {});
  detail::FlatTree result;
  Linearized made = linearize_of(detail::BodyRef(body), std::move(primals), active, result, {},
                                 "linearize", wanted);
  LinearizedProgram out;
  out.linear = made.linear.jaxpr;
  out.active_out = made.linear.active_out;
  std::vector<Array> outs = std::move(made.outs);
  for (Array& r : made.linear.residuals) outs.push_back(std::move(r));
  Traced traced = trace.build(outs, "linearize", {});
  out.primal = std::move(traced.jaxpr);
  out.primal_consts = std::move(traced.consts);
  return out;
}

}  // namespace shmap
