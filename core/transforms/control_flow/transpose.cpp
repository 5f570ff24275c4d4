#include <algorithm>
#include <utility>

#include "core/compiler/passes/dead_code.h"
#include "core/ops/elementwise.h"
#include "core/ops/rules.h"
#include "core/transforms/autodiff/derived.h"
#include "core/transforms/autodiff/partial_eval.h"
#include "core/transforms/autodiff/transpose.h"
#include "core/transforms/control_flow/derivatives.h"
#include "core/transforms/control_flow/staged_flow.h"
#include "core/transforms/control_flow/widen.h"

namespace shmap {

void ClosedBody::operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
  std::vector<Array> args = consts;
  append_to(args, leaves);
  leaves.clear();
  give_leaves(eval_jaxpr(*jaxpr, std::move(args)), result);
}

void give_leaves(std::vector<Array> leaves, detail::FlatTree& result) {
  result.leaves = std::move(leaves);
  result.node.kind = detail::TreeNode::list;
  result.node.children.resize(result.leaves.size());
}

void append_to(std::vector<Array>& values, std::span<const Array> more) {
  values.insert(values.end(), more.begin(), more.end());
}

JaxprRef program_of(const Jaxpr& like, std::vector<VarRef> binders, std::vector<Eqn> eqns,
                    std::vector<Atom> outs) {
  return remove_dead_code(*jaxpr_like(like, std::move(binders), std::move(eqns), std::move(outs)));
}

JaxprRef widen_all(const JaxprRef& jaxpr, const AxisSet& axes) {
  if (axes.empty() || !jaxpr->checks_variance) return jaxpr;
  std::vector<ShapedArray> results;
  for (const Atom& a : jaxpr->outs) results.push_back(a.type().with_axes(a.type().axes() | axes));
  return widen(*jaxpr, axes, results);
}

Array widened(const Array& x, const AxisSet& axes, SourceLine source) {
  Trace& trace = current_trace();
  if (!trace.checks_variance() || node_of(x)->type.axes().contains(axes)) return x;
  return trace.vary(x, axes, source);
}

bool any_of(const Flags& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

namespace {

FlowSite site_of(const TransposeCall& call) {
  return {call.primitive.name, nullptr, 0, call.source};
}

Flags linear_operands(const TransposeCall& call, std::size_t first) {
  Flags linear;
  for (std::size_t i = first; i < call.in.size(); ++i) linear.push_back(call.is_linear(i));
  return linear;
}

// ---- scan

class ScanTransposer {
 public:
  ScanTransposer(TransposeCall& call, const ScanLoopParams& p)
      : call_(call),
        p_(p),
        first_(count(p.num_consts)),
        carry_(count(p.num_carry)),
        linear_(linear_operands(call, 0)) {
    spread_to_carries(*p.jaxpr, first_, carry_, linear_);
  }

  void run() {
    transpose_body();
    const std::size_t n = linear_.size();
    std::vector<Array> known_carries = run_known_carries();
    std::vector<Array> init, xs;
    for (std::size_t i = 0; i < first_; ++i)
      if (made_.active_out[i]) init.push_back(zeros_of(call_.in_types[i], call_.source));
    sums_ = init.size();
    for (std::size_t k = 0; k < carry_; ++k) {
      if (given_[k])
        init.push_back(or_zeros(call_.cotangents[k], call_.in_types[first_ + k], call_.source));
    }
    std::move(known_carries.begin(), known_carries.end(), std::back_inserter(xs));
    for (std::size_t i = first_ + carry_; i < n; ++i)
      if (!linear_[i]) xs.push_back(call_.in[i]);
    for (std::size_t o = carry_; o < given_.size(); ++o)
      if (given_[o]) xs.push_back(call_.cotangents[o]);
    auto body = [this](std::vector<Array>& leaves, detail::FlatTree& result) {
      trip(leaves, result);
    };
    const std::vector<Array> results =
        stage_scan(site_of(call_), detail::BodyRef(body), std::move(init), std::move(xs), p_.length,
                   !p_.reverse);
    std::size_t next = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (!made_.active_out[i]) continue;
      if (call_.is_linear(i)) call_.out[i] = results[next];
      ++next;
    }
  }

 private:
  // Makes the body's transpose. Repeats it until the carries whose cotangents it takes are those
  // whose cotangents it returns.
  void transpose_body() {
    given_.resize(p_.jaxpr->outs.size());
    for (std::size_t o = 0; o < given_.size(); ++o)
      given_[o] = call_.cotangents[o].node() && (o >= carry_ || linear_[first_ + o]);
    for (;;) {
      Flags wanted(linear_.size());
      for (std::size_t k = 0; k < carry_; ++k) wanted[first_ + k] = given_[k];
      made_ = *derived_transpose(p_.jaxpr, linear_, given_, wanted);
      bool grew = false;
      for (std::size_t k = 0; k < carry_; ++k) {
        if (given_[k] || !made_.active_out[first_ + k]) continue;
        given_[k] = grew = true;
      }
      if (!grew) return;
    }
  }

  // The values, in each trip, of carries that do not depend on linear arguments, such as a loop's
  // index.
  std::vector<Array> run_known_carries() {
    Flags known(p_.jaxpr->outs.size());
    for (std::size_t k = 0; k < carry_; ++k) known[k] = !linear_[first_ + k];
    if (!any_of(known)) return {};
    PruneMemo memo{&no_effects, {}};  // the transpose's trips perform the effects
    const PrunedJaxpr pruned = prune_jaxpr(*p_.jaxpr, known, memo);
    std::vector<Array> init, xs;
    for (std::size_t i = first_; i < linear_.size(); ++i)
      if (!linear_[i]) (i < first_ + carry_ ? init : xs).push_back(call_.in[i]);
    const std::size_t n = init.size();
    auto body = [&](std::vector<Array>& leaves, detail::FlatTree& result) {
      std::vector<Array> args, out,
          now(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(n));
      auto next = leaves.begin();
      for (std::size_t i = 0; i < linear_.size(); ++i) {
        if (linear_[i]) continue;
        const Array& x = i < first_ ? call_.in[i] : *next++;
        if (pruned.kept[i]) args.push_back(x);
      }
      out = eval_jaxpr(*pruned.jaxpr, std::move(args));
      append_to(out, now);
      give_leaves(std::move(out), result);
    };
    const std::vector<Array> results =
        stage_scan(site_of(call_), detail::BodyRef(body), std::move(init), std::move(xs), p_.length,
                   p_.reverse);
    return {results.begin() + static_cast<std::ptrdiff_t>(n), results.end()};
  }

  // leaves: sums of the constants' cotangents, the carry's cotangents, the known values of this
  // trip, cotangents of its ys. Results: the new sums, cotangents of the carry, cotangents of xs.
  void trip(std::vector<Array>& leaves, detail::FlatTree& result) const {
    std::vector<Array> args = made_.consts;
    const auto carries = static_cast<std::size_t>(
        std::count(given_.begin(), given_.begin() + static_cast<std::ptrdiff_t>(carry_), true));
    auto next = leaves.begin() + static_cast<std::ptrdiff_t>(sums_ + carries);
    for (std::size_t i = 0; i < linear_.size(); ++i)
      if (!linear_[i]) args.push_back(i < first_ ? call_.in[i] : *next++);
    append_to(args, std::span<const Array>(leaves).subspan(sums_, carries));
    args.insert(args.end(), next, leaves.end());
    std::vector<Array> outs = eval_jaxpr(*made_.jaxpr, std::move(args));
    for (std::size_t s = 0; s < sums_; ++s)
      outs[s] = bind(add_p, leaves[s], outs[s], no_params, {});
    give_leaves(std::move(outs), result);
  }

  TransposeCall& call_;
  const ScanLoopParams& p_;
  std::size_t first_, carry_, sums_ = 0;
  Flags linear_;  // of the body's arguments
  Flags given_;   // of its results: which have cotangents
  TransposedProgram made_;
};

}  // namespace

void transpose_scan(TransposeCall& call) {
  ScanTransposer(call, params_as<ScanLoopParams>(call.params)).run();
}

// ---- cond

namespace {

// The cotangent of a value that was cast to vary over the cotangent's axes.
Array uncast(const Array& cotangent, const ShapedArray& type, SourceLine source) {
  const AxisSet axes = node_of(cotangent)->type.axes();
  if (!current_trace().checks_variance() || type.axes().contains(axes)) return cotangent;
  JaxprTrace trace("transpose", current_trace().axis_env());
  Array x = trace.argument(type);
  Array y = trace.vary(x, axes, source);
  const Traced cast = trace.build(std::span(&y, 1), "transpose", source);
  return backward_pass(*cast.jaxpr, std::vector<Array>(1), {cotangent})[0];
}

}  // namespace

void transpose_cond(TransposeCall& call) {
  const auto& p = params_as<CondParams>(call.params);
  const AxisSet axes = call.in_types[0].axes();
  const Flags linear = linear_operands(call, 1);
  Flags given, active(linear.size());
  for (const Array& ct : call.cotangents) given.push_back(ct.node() != nullptr);
  std::vector<JaxprRef> branches;
  std::vector<TransposedProgram> made;
  for (const JaxprRef& b : p.branches) {
    branches.push_back(widen_all(b, axes));
    made.push_back(*derived_transpose(branches.back(), linear, given));
    for (std::size_t i = 0; i < active.size(); ++i)
      active[i] = active[i] || made.back().active_out[i];
  }
  if (!any_of(active)) return;
  std::vector<ClosedBody> bodies;
  for (std::size_t b = 0; b < branches.size(); ++b) {
    if (made[b].active_out != active)
      made[b] = *derived_transpose(branches[b], linear, given, active);
    bodies.push_back({made[b].jaxpr, made[b].consts});
  }
  std::vector<detail::BodyRef> refs;
  for (ClosedBody& b : bodies) refs.emplace_back(b);
  std::vector<Array> arguments;
  for (std::size_t i = 0; i < linear.size(); ++i)
    if (!linear[i]) arguments.push_back(widened(call.in[i + 1], axes, call.source));
  for (const Array& ct : call.cotangents)
    if (ct.node()) arguments.push_back(ct);
  const std::vector<Array> results =
      stage_cond(site_of(call), call.in[0], refs, branch_names(call.in_types[0], refs.size()),
                 std::move(arguments));
  std::size_t next = 0;
  for (std::size_t i = 0; i < linear.size(); ++i)
    if (active[i]) call.out[i + 1] = uncast(results[next++], call.in_types[i + 1], call.source);
}

}  // namespace shmap
