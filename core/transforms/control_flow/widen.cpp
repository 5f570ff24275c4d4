#include "core/transforms/control_flow/widen.h"

#include <utility>
#include <vector>

#include "core/ir/nesting.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/tracing/make_jaxpr.h"
#include "core/tracing/stage_in_body.h"
#include "core/transforms/control_flow/carry_types.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/control_flow/flow_rules.h"
#include "core/transforms/control_flow/flow_site.h"
#include "core/transforms/control_flow/staged_flow.h"

namespace shmap {

namespace {

FlowSite site_of(const WidenCall& call) {
  return {call.eqn.primitive->name, nullptr, 0, call.eqn.source};
}

std::vector<Array> part(const WidenCall& call, std::size_t from, std::size_t n) {
  return {call.in.begin() + static_cast<std::ptrdiff_t>(from),
          call.in.begin() + static_cast<std::ptrdiff_t>(from + n)};
}

void give(WidenCall& call, std::vector<Array> results) {
  std::move(results.begin(), results.end(), call.out.begin());
}

}  // namespace

void widen_scan(WidenCall& call) {
  const auto& p = params_as<ScanLoopParams>(*call.eqn.params);
  const std::size_t carry_at = count(p.num_consts), xs_at = carry_at + count(p.num_carry);
  StagedBody body(*p.jaxpr, call.in.first(carry_at));
  give(call,
       stage_scan(site_of(call), detail::BodyRef(body), part(call, carry_at, xs_at - carry_at),
                  part(call, xs_at, call.in.size() - xs_at), p.length, p.reverse));
}

void widen_while(WidenCall& call) {
  const auto& p = params_as<WhileParams>(*call.eqn.params);
  const std::size_t tests = count(p.cond_nconsts), bodies = count(p.body_nconsts);
  StagedBody test(*p.cond_jaxpr, call.in.first(tests));
  StagedBody body(*p.body_jaxpr, call.in.subspan(tests, bodies));
  give(call, stage_while(site_of(call), detail::BodyRef(test), detail::BodyRef(body),
                         part(call, tests + bodies, call.in.size() - tests - bodies)));
}

void widen_cond(WidenCall& call) {
  const auto& p = params_as<CondParams>(*call.eqn.params);
  std::vector<StagedBody> bodies;
  for (const JaxprRef& b : p.branches) bodies.emplace_back(*b);
  std::vector<detail::BodyRef> branches;
  for (StagedBody& b : bodies) branches.emplace_back(b);
  give(call, stage_cond(site_of(call), call.in[0], branches,
                        branch_names(node_of(call.in[0])->type, bodies.size()),
                        part(call, 1, call.in.size() - 1)));
}

JaxprRef widen(const Jaxpr& jaxpr, const AxisSet& axes, std::span<const ShapedArray> results) {
  bool wide = true;
  for (const VarRef& v : jaxpr.binders) wide = wide && v->type.axes().contains(axes);
  for (std::size_t o = 0; o < results.size(); ++o)
    wide = wide && !jaxpr.outs[o].is_literal() && jaxpr.outs[o].type() == results[o] &&
           jaxpr.outs[o].type().weak() == results[o].weak();
  if (wide) return JaxprRef(&jaxpr);
  const PassVisit visit("widen", jaxpr);
  JaxprTrace trace("widen", jaxpr);
  std::vector<Array> args;
  for (const VarRef& v : jaxpr.binders)
    args.push_back(trace.argument(v->type.with_axes(v->type.axes() | axes)));
  TraceScope scope(trace);
  std::vector<Array> outs = stage_in_body(jaxpr, std::move(args));
  for (std::size_t o = 0; o < outs.size(); ++o) outs[o] = fit(std::move(outs[o]), results[o], {});
  return trace.build(outs, "widen", {}).jaxpr;
}

}  // namespace shmap
