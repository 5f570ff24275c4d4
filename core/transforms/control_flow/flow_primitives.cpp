// The types of the primitives, and how they are interpreted.
#include "core/transforms/control_flow/flow_primitives.h"

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/ir/node.h"
#include "core/ir/rules.h"
#include "core/ir/trace.h"
#include "core/tracing/jaxpr_body.h"
#include "core/transforms/control_flow/carry_types.h"
#include "core/transforms/control_flow/derivatives.h"
#include "core/transforms/control_flow/eager_flow.h"
#include "core/transforms/control_flow/flow_rules.h"
#include "core/transforms/control_flow/flow_site.h"
#include "core/transforms/control_flow/scan_elements.h"
#include "core/transforms/control_flow/staged_flow.h"

namespace shmap {

namespace {

// Checks operands against a program's binders: shape, dtype, and variance. Where variance is only
// inferred, an operand may vary over fewer axes than its binder.
void check_operands(const char* what, Types in, std::size_t first, const Jaxpr& jaxpr,
                    std::size_t binder, std::size_t n) {
  const bool strict = current_trace().checks_variance();
  for (std::size_t i = 0; i < n; ++i) {
    const ShapedArray &given = in[first + i], &wanted = jaxpr.binders[binder + i]->type;
    const bool axes = strict && jaxpr.env ? given.axes() == wanted.axes()
                                          : wanted.axes().contains(given.axes()) || !jaxpr.env;
    if (given.dtype() == wanted.dtype() && given.dims() == wanted.dims() && axes) continue;
    throw TypeError(std::string(what) + ": operand " + std::to_string(first + i) + " has type " +
                    to_string(given) + ", and the program inside takes " + to_string(wanted));
  }
}

void check_count(const char* what, const char* noun, std::size_t given, std::size_t wanted) {
  if (given == wanted) return;
  throw TypeError(std::string(what) + ": " + std::to_string(given) + " " + noun + ", and " +
                  std::to_string(wanted) + " are wanted");
}

// Checks that a body returns the types of its carry.
void check_carry(const char* what, const Jaxpr& jaxpr, std::size_t first, std::size_t n) {
  for (std::size_t k = 0; k < n; ++k) {
    const ShapedArray &in = jaxpr.binders[first + k]->type, &out = jaxpr.outs[k].type();
    const bool axes = jaxpr.checks_variance ? in.axes() == out.axes() || jaxpr.outs[k].is_literal()
                                            : in.axes().contains(out.axes());
    if (in.dtype() == out.dtype() && in.dims() == out.dims() && axes) continue;
    throw TypeError(std::string(what) + ": carry " + std::to_string(k) + " has type " +
                    to_string(in) + ", and the body returns " + to_string(out));
  }
}

// A copy of the parameters, whose programs the caller replaces.
template <class P>
std::shared_ptr<P> copy_of(const Params& params) {
  return std::make_shared<P>(params_as<P>(params));
}

// ---- while

std::shared_ptr<const Params> with_while_programs(const Params& params,
                                                  std::span<const JaxprRef> programs) {
  auto copy = copy_of<WhileParams>(params);
  copy->body_jaxpr = programs[0];
  copy->cond_jaxpr = programs[1];
  return copy;
}

int while_results(Types in, const Params& params) {
  const auto& p = params_as<WhileParams>(params);
  return static_cast<int>(in.size()) - p.cond_nconsts - p.body_nconsts;
}

void eval_while(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<WhileParams>(params);
  const std::size_t tests = count(p.cond_nconsts), bodies = count(p.body_nconsts);
  const std::size_t first = tests + bodies;
  check_count("while", "arguments of the condition", p.cond_jaxpr->binders.size(),
              tests + out.size());
  check_count("while", "arguments of the body", p.body_jaxpr->binders.size(), bodies + out.size());
  check_count("while", "results of the condition", p.cond_jaxpr->outs.size(), 1);
  check_count("while", "results of the body", p.body_jaxpr->outs.size(), out.size());
  check_operands("while", in, 0, *p.cond_jaxpr, 0, tests);
  check_operands("while", in, tests, *p.body_jaxpr, 0, bodies);
  check_operands("while", in, first, *p.cond_jaxpr, tests, out.size());
  check_operands("while", in, first, *p.body_jaxpr, bodies, out.size());
  check_predicate(FlowSite{"while", nullptr, 0, {}}, "what the condition returns",
                  p.cond_jaxpr->outs[0].type());
  check_carry("while", *p.body_jaxpr, bodies, out.size());
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = p.body_jaxpr->binders[bodies + k]->type;
}

// A carry varies as its type says, and over the axes of the condition.
void vary_while(Types, const Params& params, const detail::AxisEnv&, std::span<ShapedArray> out) {
  const auto& p = params_as<WhileParams>(params);
  const AxisSet axes = p.cond_jaxpr->outs[0].type().axes();
  for (std::size_t k = 0; k < out.size(); ++k) {
    const AxisSet own = p.body_jaxpr->binders[count(p.body_nconsts) + k]->type.axes();
    if (p.body_jaxpr->checks_variance && !own.contains(axes)) {
      throw TypeError("while: the condition varies over " + to_string(Axes(axes.names())) +
                      ", and carry " + std::to_string(k) + " has type " + to_string(out[k]) +
                      ": what a varying trip count decides varies too");
    }
    out[k] = out[k].with_axes(own | axes);
  }
}

void interpret_while(std::span<Array> in, const Params& params, std::span<Array> out,
                     SourceLine source) {
  const auto& p = params_as<WhileParams>(params);
  const std::size_t tests = count(p.cond_nconsts), first = tests + count(p.body_nconsts);
  JaxprBody test(*p.cond_jaxpr, in.subspan(0, tests));
  JaxprBody body(*p.body_jaxpr, in.subspan(tests, first - tests));
  std::vector<Array> carry;
  for (std::size_t i = first; i < in.size(); ++i) carry.push_back(std::move(in[i]));
  std::vector<Array> results = run_while({"while", nullptr, 0, source}, detail::BodyRef(test),
                                         detail::BodyRef(body), std::move(carry));
  std::move(results.begin(), results.end(), out.begin());
}

// ---- scan

std::shared_ptr<const Params> with_scan_program(const Params& params,
                                                std::span<const JaxprRef> programs) {
  auto copy = copy_of<ScanLoopParams>(params);
  copy->jaxpr = programs[0];
  return copy;
}

std::int64_t scan_trips(const Params& params) { return params_as<ScanLoopParams>(params).length; }

int scan_results(Types, const Params& params) {
  return static_cast<int>(params_as<ScanLoopParams>(params).jaxpr->outs.size());
}

void eval_scan(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<ScanLoopParams>(params);
  const std::size_t carry = count(p.num_carry), first = count(p.num_consts);
  check_count("scan", "operands", in.size(), p.jaxpr->binders.size());
  check_operands("scan", in, 0, *p.jaxpr, 0, first + carry);
  for (std::size_t i = first + carry; i < in.size(); ++i) {
    if (in[i].rank() == 0 || in[i].dims()[0] != p.length) {
      throw TypeError("scan: operand " + std::to_string(i) + " has type " + to_string(in[i]) +
                      ", and a first dim of the length " + std::to_string(p.length) + " is wanted");
    }
    const ShapedArray element[] = {element_type(in[i])};
    check_operands("scan", element, 0, *p.jaxpr, i, 1);
  }
  check_carry("scan", *p.jaxpr, first, carry);
  for (std::size_t o = 0; o < out.size(); ++o)
    out[o] = o < carry ? p.jaxpr->binders[first + o]->type
                       : stacked_type(p.jaxpr->outs[o].type(), p.length);
}

// eval_scan has taken the types, variance included, from the program inside.
void keep_axes(Types, const Params&, const detail::AxisEnv&, std::span<ShapedArray>) {}

void interpret_scan(std::span<Array> in, const Params& params, std::span<Array> out,
                    SourceLine source) {
  const auto& p = params_as<ScanLoopParams>(params);
  const std::size_t first = count(p.num_consts), xs_at = first + count(p.num_carry);
  JaxprBody body(*p.jaxpr, in.subspan(0, first));
  std::vector<Array> carry, xs;
  for (std::size_t i = first; i < in.size(); ++i)
    (i < xs_at ? carry : xs).push_back(std::move(in[i]));
  std::vector<Array> results = run_scan({"scan", nullptr, 0, source}, detail::BodyRef(body),
                                        std::move(carry), std::move(xs), p.length, p.reverse);
  std::move(results.begin(), results.end(), out.begin());
}

// ---- cond

std::shared_ptr<const Params> with_branches(const Params& params,
                                            std::span<const JaxprRef> programs) {
  auto copy = copy_of<CondParams>(params);
  copy->branches.assign(programs.begin(), programs.end());
  return copy;
}

int cond_results(Types, const Params& params) {
  return static_cast<int>(params_as<CondParams>(params).branches.at(0)->outs.size());
}

void eval_cond(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<CondParams>(params);
  if (in[0].dtype() == DType::bool_) {
    check_predicate(FlowSite{"cond", nullptr, 0, {}}, "the predicate", in[0]);
    check_count("cond", "branches for a bool", p.branches.size(), 2);
  } else {
    check_index(FlowSite{"cond", nullptr, 0, {}}, in[0]);
  }
  for (std::size_t b = 0; b < p.branches.size(); ++b) {
    const Jaxpr& branch = *p.branches[b];
    check_count("cond", "operands of a branch", in.size() - 1, branch.binders.size());
    check_count("cond", "results of a branch", branch.outs.size(), out.size());
    check_operands("cond", in, 1, branch, 0, branch.binders.size());
    for (std::size_t o = 0; o < out.size(); ++o) {
      const ShapedArray& type = branch.outs[o].type();
      if (b == 0) {
        out[o] = type;
        continue;
      }
      const bool loose = !branch.checks_variance || branch.outs[o].is_literal() ||
                         p.branches[0]->outs[o].is_literal();
      if (type.dtype() != out[o].dtype() || !(type.dims() == out[o].dims()) ||
          !(loose || type.axes() == out[o].axes())) {
        throw TypeError("cond: result " + std::to_string(o) + " has type " + to_string(out[o]) +
                        " in branch 0 and " + to_string(type) + " in branch " + std::to_string(b));
      }
      out[o] = ShapedArray(type.dims(), type.dtype(), type.weak() && out[o].weak(),
                           type.axes() | out[o].axes());
    }
  }
}

// Results vary over the axes of the index too.
void vary_cond(Types in, const Params&, const detail::AxisEnv&, std::span<ShapedArray> out) {
  for (ShapedArray& t : out) t = t.with_axes(t.axes() | in[0].axes());
}

void interpret_cond(std::span<Array> in, const Params& params, std::span<Array> out,
                    SourceLine source) {
  const auto& p = params_as<CondParams>(params);
  std::vector<JaxprBody> bodies;
  for (const JaxprRef& b : p.branches) bodies.emplace_back(*b, std::span<const Array>());
  std::vector<detail::BodyRef> branches;
  for (JaxprBody& b : bodies) branches.emplace_back(b);
  const Array index = std::move(in[0]);
  std::vector<Array> arguments;
  for (std::size_t i = 1; i < in.size(); ++i) arguments.push_back(std::move(in[i]));
  std::vector<Array> results =
      run_cond({"cond", nullptr, 0, source}, index, branches,
               branch_names(node_of(index)->type, branches.size()), std::move(arguments))
          .leaves;
  std::move(results.begin(), results.end(), out.begin());
}

}  // namespace

void WhileParams::visit(ParamVisitor& v) const {
  v.value("body_jaxpr", *body_jaxpr);
  v.value("body_nconsts", std::int64_t{body_nconsts});
  v.value("cond_jaxpr", *cond_jaxpr);
  v.value("cond_nconsts", std::int64_t{cond_nconsts});
}

void ScanLoopParams::visit(ParamVisitor& v) const {
  v.value("jaxpr", *jaxpr);
  v.value("length", length);
  v.value("num_carry", std::int64_t{num_carry});
  v.value("num_consts", std::int64_t{num_consts});
  v.value("reverse", reverse);
}

void CondParams::visit(ParamVisitor& v) const {
  for (std::size_t b = 0; b < branches.size(); ++b)
    v.value("branches[" + std::to_string(b) + "]", *branches[b]);
}

constinit Primitive while_p = [] {
  Primitive p;
  p.name = "while";
  p.programs.control_flow = ControlFlow::while_loop;
  p.abstract_eval = eval_while;
  p.result_count = while_results;
  p.variance = vary_while;
  p.interpret = interpret_while;
  p.lower = lower_while;
  p.batching = Rule<BatchFn>(batch_while);
  p.programs.replace = with_while_programs;
  p.jvp = Rule<JvpFn>(jvp_while);
  p.transpose = Rule<TransposeFn>::none(
      "reverse mode needs to know the number of trips: use scan, or fori_loop with bounds that are "
      "host integers");
  p.programs.prune = prune_while;
  p.programs.depends = depends_while;
  p.programs.widen = widen_while;
  return p;
}();

constinit Primitive scan_p = [] {
  Primitive p;
  p.name = "scan";
  p.programs.control_flow = ControlFlow::scan;
  p.abstract_eval = eval_scan;
  p.result_count = scan_results;
  p.variance = keep_axes;
  p.interpret = interpret_scan;
  p.lower = lower_scan;
  p.batching = Rule<BatchFn>(batch_scan);
  p.programs.replace = with_scan_program;
  p.jvp = Rule<JvpFn>(jvp_scan);
  p.transpose = Rule<TransposeFn>(transpose_scan);
  p.programs.prune = prune_scan;
  p.programs.depends = depends_scan;
  p.programs.widen = widen_scan;
  p.programs.trips = scan_trips;
  return p;
}();

constinit Primitive cond_p = [] {
  Primitive p;
  p.name = "cond";
  p.programs.control_flow = ControlFlow::cond;
  p.abstract_eval = eval_cond;
  p.result_count = cond_results;
  p.variance = vary_cond;
  p.interpret = interpret_cond;
  p.lower = lower_cond;
  p.batching = Rule<BatchFn>(batch_cond);
  p.programs.replace = with_branches;
  p.jvp = Rule<JvpFn>(jvp_cond);
  p.transpose = Rule<TransposeFn>(transpose_cond);
  p.programs.prune = prune_cond;
  p.programs.depends = depends_cond;
  p.programs.widen = widen_cond;
  return p;
}();

void register_control_flow() {
  register_primitive(while_p);
  register_primitive(scan_p);
  register_primitive(cond_p);
}

}  // namespace shmap
