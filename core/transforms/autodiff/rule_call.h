// Calls a function with a user's derivative rule under the current trace, and holds the rules of
// the equation for such a call in a program. Shared by custom_jvp and custom_vjp.
//
// A Kind (CustomJvp, CustomVjp) has
//   name, primitive()              of its equations, whose parameters are `Params`
//   arguments, made                as in the parameters
//   differentiate(...)             calls the rule, under the trace of the tangents
//   batched(rule, batched, size)   the rule for arguments of which these leaves are batched
#pragma once
#include <utility>
#include <vector>

#include "core/ops/rules.h"
#include "core/tracing/make_jaxpr.h"
#include "core/transforms/autodiff/custom_batch.h"
#include "core/transforms/autodiff/custom_rules.h"
#include "core/transforms/autodiff/derivative_args.h"
#include "core/transforms/autodiff/jvp.h"
#include "core/transforms/autodiff/transpose.h"

namespace shmap {

// The trace that interprets a call on given values.
enum class RuleTraceKind { here, below, jvp, batch, staged };
struct RuleTrace {
  RuleTraceKind kind;
  Trace* trace;  // for `below`: the trace below; otherwise the current trace
};
RuleTrace rule_trace(std::span<const Array> leaves);

// The results of a rule; an empty tangent is zero.
struct RuleResult {
  std::vector<Array> y, y_dot;
};

// The arguments of a rule; empty tangents are zero. like: receives the structure of y, or null
// (shmap/custom_rules.h). wanted: the types of the function's result, null where they are not
// known. linear: the linear program that is built; null in forward mode. parent: the primals'
// trace.
struct RuleCall {
  void* like;
  std::span<const Array> primals, tangents;
  const Types* wanted;
  JaxprTrace* linear;
  Trace& parent;
};

template <class Kind>
std::vector<Array> call_with_rule(detail::BodyRef f, const typename Kind::Code& rule, void* like,
                                  const Kind& kind, std::vector<Array> leaves) {
  const RuleTrace target = rule_trace(leaves);
  switch (target.kind) {
    case RuleTraceKind::here: {
      detail::FlatTree result;
      f(leaves, result);
      return std::move(result.leaves);
    }
    case RuleTraceKind::below: {
      TraceScope scope(*target.trace);
      return call_with_rule(f, rule, like, kind, std::move(leaves));
    }
    case RuleTraceKind::jvp: {
      auto& jvp = static_cast<JvpTrace&>(*target.trace);
      std::vector<Array> primals, tangents;
      for (const Array& x : leaves) {
        auto [primal, tangent] = jvp.split(x);
        primals.push_back(std::move(primal));
        tangents.push_back(std::move(tangent));
      }
      RuleResult out;
      {
        const JvpTrace::Place at = jvp.place(primals, tangents);
        TraceScope scope(at.linear ? static_cast<Trace&>(*at.linear) : at.parent);
        out = kind.differentiate(rule, {like, primals, tangents, nullptr, at.linear, at.parent});
      }
      for (std::size_t o = 0; o < out.y.size(); ++o)
        out.y[o] = jvp.dual(std::move(out.y[o]), std::move(out.y_dot[o]), Kind::name, kind.made);
      return std::move(out.y);
    }
    case RuleTraceKind::batch: {
      auto& batch = static_cast<BatchTrace&>(*target.trace);
      BatchedLeaves batched = split_batched(batch, std::move(leaves));
      BatchedBody body(f, batched.batched, batch.size(), batch.tag());
      std::vector<Array> out;
      {
        TraceScope scope(batch.parent());
        out =
            call_with_rule(detail::BodyRef(body), kind.batched(rule, batched.batched, batch.size()),
                           like, kind, std::move(batched.leaves));
      }
      for (Array& x : out) x = batch.wrap(std::move(x), 0);
      return out;
    }
    case RuleTraceKind::staged:
      break;
  }
  Traced traced = trace_called(Kind::name, f, leaves, kind.made);
  typename Kind::Params params;
  params.jaxpr = std::move(traced.jaxpr);
  params.rule = rule;
  params.num_consts = static_cast<int>(traced.consts.size());
  params.arguments = kind.arguments;
  params.made = kind.made;
  std::vector<Array> operands = std::move(traced.consts);
  for (Array& x : leaves) operands.push_back(std::move(x));
  return bind_all(Kind::primitive(), operands, params, kind.made);
}

// The public call of a function on the leaves of its arguments.
template <class Kind>
std::vector<Array> leaves_with_rule(detail::BodyRef f, const typename Kind::Code& rule, void* like,
                                    detail::FlatTree arguments, SourceLine made) {
  ensure_started();
  argument_types(Kind::name, arguments, made);
  ClosedFunction closed(Kind::name, made);
  return call_with_rule(f, rule, like, Kind{arguments.node, made}, std::move(arguments.leaves));
}

template <class Kind>
void jvp_of_equation(JvpCall& call) {
  const auto& p = params_as<typename Kind::Params>(call.params);
  const auto n = static_cast<std::size_t>(p.num_consts);
  const std::vector<ShapedArray> types =
      called_results(Kind::name, call, *p.jaxpr, p.num_consts, p.made);
  const Types wanted = types;
  ClosedFunction closed(Kind::name, p.made);
  RuleResult made = Kind{p.arguments, p.made}.differentiate(
      p.rule, {nullptr, call.primals.subspan(n), call.tangents.subspan(n), &wanted, call.linear,
               call.parent});
  std::move(made.y.begin(), made.y.end(), call.out.begin());
  std::move(made.y_dot.begin(), made.y_dot.end(), call.tangents_out.begin());
}

template <class Kind>
void batch_equation(BatchCall& call) {
  const auto& p = params_as<typename Kind::Params>(call.params);
  typename Kind::Params params = p;
  BatchedCall batched = batch_called(call, p.jaxpr, static_cast<std::size_t>(p.num_consts));
  params.jaxpr = std::move(batched.jaxpr);
  params.num_consts = batched.num_consts;
  params.rule = Kind{p.arguments, p.made}.batched(p.rule, batched.batched, call.size);
  give(call, batched.operands, params, 0);
}

template <class Kind>
constexpr Primitive primitive_with_rule(const char* name) {
  Primitive p = called_primitive(name);
  p.programs.replace = with_called_program<typename Kind::Params>;
  p.jvp = Rule<JvpFn>(jvp_of_equation<Kind>);
  p.transpose = Rule<TransposeFn>(transpose_called);
  p.batching = Rule<BatchFn>(batch_equation<Kind>);
  return p;
}

}  // namespace shmap
