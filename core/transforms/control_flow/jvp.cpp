// Tangents computed together with primals: loops that carry both, branches that return both.
#include <algorithm>
#include <utility>

#include "core/ops/rules.h"
#include "core/tracing/jaxpr_body.h"
#include "core/transforms/autodiff/derived.h"
#include "core/transforms/autodiff/partial_eval.h"
#include "core/transforms/control_flow/derivatives.h"
#include "core/transforms/control_flow/staged_flow.h"

namespace shmap {

FlowSite site_of(const JvpCall& call) { return {call.primitive.name, nullptr, 0, call.source}; }

Flags active_operands(const JvpCall& call, std::size_t first) {
  Flags active;
  for (std::size_t i = first; i < call.primals.size(); ++i) active.push_back(call.has_tangent(i));
  return active;
}

void give_results(JvpCall& call, const Flags& active_out, std::span<const Array> primals,
                  std::span<const Array> tangents) {
  std::size_t next = 0;
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    if (!primals.empty()) call.out[o] = primals[o];
    if (active_out[o]) call.tangents_out[o] = tangents[next++];
  }
}

namespace {

// Appends the tangents of operands [from, to) that `active` names; zeros where an operand has no
// tangent.
void append_tangents(const JvpCall& call, const Flags& active, std::size_t from, std::size_t to,
                     std::vector<Array>& out) {
  for (std::size_t i = from; i < to; ++i)
    if (active[i]) out.push_back(or_zeros(call.tangents[i], call.type(i), call.source));
}

// ---- loops of primals and tangents together

// The body of a loop that carries primals and tangents: sorts its leaves into the arguments of the
// JVP program.
class JvpBody {
 public:
  JvpBody(const JvpCall& call, const JvpProgram& program, const Flags& active, std::size_t consts,
          std::size_t carry)
      : program_(program), active_(active), consts_(consts), carry_(carry) {
    values_.assign(call.primals.begin(),
                   call.primals.begin() + static_cast<std::ptrdiff_t>(consts));
    append_tangents(call, active, 0, consts, tangents_);
  }

  // leaves: the carry, its tangents, xs, their tangents. Results: the carry, its tangents, ys,
  // their tangents.
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
    const std::size_t n = active_.size();
    std::vector<Array> args = program_.consts, tangents = tangents_;
    append_to(args, values_);
    auto next = leaves.begin();
    for (const auto& [from, to] : {std::pair(consts_, consts_ + carry_), {consts_ + carry_, n}}) {
      for (std::size_t i = from; i < to; ++i) args.push_back(*next++);
      for (std::size_t i = from; i < to; ++i)
        if (active_[i]) tangents.push_back(*next++);
    }
    append_to(args, tangents);
    const std::vector<Array> outs = eval_jaxpr(*program_.jaxpr, std::move(args));
    const std::size_t ys = program_.active_out.size() - carry_;
    const auto moving = static_cast<std::size_t>(
        std::count(program_.active_out.begin(),
                   program_.active_out.begin() + static_cast<std::ptrdiff_t>(carry_), true));
    const std::span<const Array> all(outs);
    std::vector<Array> out;
    append_to(out, all.subspan(0, carry_));
    append_to(out, all.subspan(carry_ + ys, moving));
    append_to(out, all.subspan(carry_, ys));
    append_to(out, all.subspan(carry_ + ys + moving));
    give_leaves(std::move(out), result);
  }

  // Writes the loop's results to the primals and tangents of the call.
  void give(JvpCall& call, std::span<const Array> results) const {
    std::vector<Array> primals, tangents;
    auto next = results.begin();
    const std::size_t n = program_.active_out.size();
    for (const auto& [from, to] : {std::pair(std::size_t{0}, carry_), {carry_, n}}) {
      for (std::size_t o = from; o < to; ++o) primals.push_back(*next++);
      for (std::size_t o = from; o < to; ++o)
        if (program_.active_out[o]) tangents.push_back(*next++);
    }
    give_results(call, program_.active_out, primals, tangents);
  }

 private:
  const JvpProgram& program_;
  const Flags& active_;
  std::size_t consts_, carry_;
  std::vector<Array> values_, tangents_;  // of the constants
};

// Operands [from, to), and their tangents.
std::vector<Array> with_tangents(const JvpCall& call, const Flags& active, std::size_t from,
                                 std::size_t to) {
  std::vector<Array> out(call.primals.begin() + static_cast<std::ptrdiff_t>(from),
                         call.primals.begin() + static_cast<std::ptrdiff_t>(to));
  append_tangents(call, active, from, to, out);
  return out;
}

void forward_scan(JvpCall& call, const ScanLoopParams& p) {
  const std::size_t first = count(p.num_consts), carry = count(p.num_carry);
  Flags active = active_operands(call, 0);
  const JvpProgram program = settle(
      active, first, carry, call.out.size(),
      [&](const Flags& in, const Flags& wanted) { return *derived_jvp(p.jaxpr, in, wanted); });
  JvpBody body(call, program, active, first, carry);
  body.give(call, stage_scan(site_of(call), detail::BodyRef(body),
                             with_tangents(call, active, first, first + carry),
                             with_tangents(call, active, first + carry, active.size()), p.length,
                             p.reverse));
}

}  // namespace

void jvp_scan(JvpCall& call) {
  const auto& p = params_as<ScanLoopParams>(call.params);
  call.linear ? linearize_scan(call, p) : forward_scan(call, p);
}

// ---- while

void jvp_while(JvpCall& call) {
  const auto& p = params_as<WhileParams>(call.params);
  const std::size_t tests = count(p.cond_nconsts), bodies = count(p.body_nconsts);
  const std::size_t carry = call.out.size();
  // The call without the condition's constants, which have no tangents.
  JvpCall inner{call.primitive,
                call.params,
                call.primals.subspan(tests),
                call.tangents.subspan(tests),
                call.out,
                call.tangents_out,
                call.source,
                call.linear,
                call.parent};
  Flags active = active_operands(inner, 0);
  const JvpProgram program = settle(
      active, bodies, carry, carry,
      [&](const Flags& in, const Flags& wanted) { return *derived_jvp(p.body_jaxpr, in, wanted); });
  if (!any_of(program.active_out)) return call.run();
  const std::span<const Array> test_consts = call.primals.subspan(0, tests);
  auto test = [&](std::vector<Array>& leaves, detail::FlatTree& result) {
    leaves.resize(carry);
    JaxprBody(*p.cond_jaxpr, test_consts)(leaves, result);
  };
  JvpBody body(inner, program, active, bodies, carry);
  const auto stage = [&] {
    body.give(inner, stage_while(site_of(call), detail::BodyRef(test), detail::BodyRef(body),
                                 with_tangents(inner, active, bodies, bodies + carry)));
  };
  if (!call.linear) return stage();
  {
    const PartialEvaluation whole(*call.linear, nullptr);  // run() computes the primals
    stage();
  }
  call.run();
}

// ---- cond

namespace {

std::vector<Array> stage_branches(const JvpCall& call, std::vector<ClosedBody>& bodies,
                                  std::vector<Array> arguments) {
  std::vector<detail::BodyRef> branches;
  for (ClosedBody& b : bodies) branches.emplace_back(b);
  return stage_cond(site_of(call), call.primals[0], branches,
                    branch_names(call.type(0), branches.size()), std::move(arguments));
}

void forward_cond(JvpCall& call, const CondParams& p) {
  const Flags active = active_operands(call, 1);
  const auto programs = join_active<JvpProgram>(
      p.branches,
      [&](const JaxprRef& b, const Flags& wanted) { return *derived_jvp(b, active, wanted); });
  const Flags& active_out = programs[0].active_out;
  if (!any_of(active_out)) return call.run();
  std::vector<ClosedBody> bodies;
  for (const JvpProgram& b : programs) bodies.push_back({b.jaxpr, b.consts});
  std::vector<Array> arguments(call.primals.begin() + 1, call.primals.end());
  for (std::size_t i = 1; i < call.primals.size(); ++i)
    if (active[i - 1]) arguments.push_back(call.tangents[i]);
  const std::vector<Array> results = stage_branches(call, bodies, std::move(arguments));
  const std::span<const Array> all(results);
  give_results(call, active_out, all.subspan(0, call.out.size()), all.subspan(call.out.size()));
}

}  // namespace

void jvp_cond(JvpCall& call) {
  const auto& p = params_as<CondParams>(call.params);
  call.linear ? linearize_cond(call, p) : forward_cond(call, p);
}

}  // namespace shmap
