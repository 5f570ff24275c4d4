// Traces the functions to programs, until the types of carries no longer change. Closed-over
// values become operands.
#include "core/transforms/control_flow/staged_flow.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "core/array/tree_paths.h"
#include "core/ir/divergence.h"
#include "core/ir/nesting.h"
#include "core/ir/types_of.h"
#include "core/tracing/trace_function.h"
#include "core/transforms/control_flow/carry_types.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/control_flow/scan_elements.h"
#include "core/transforms/control_flow/widen.h"

namespace shmap {

namespace {

bool inserts_casts() { return current_trace().checks_variance() && current_trace().casts(); }

// Compares dtype, weakness and variance; shapes are equal already.
bool same(const ShapedArray& a, const ShapedArray& b) { return a == b && a.weak() == b.weak(); }

std::vector<ShapedArray> just_types(const std::vector<CarryType>& carry) {
  std::vector<ShapedArray> types;
  for (const CarryType& c : carry) types.push_back(c.type);
  return types;
}

// Traces the body for a carry of these types and further arguments. Where the result changes the
// carry's types, `carry` gets the new types and the trace is discarded (settled: false).
Traced trace_body(const FlowSite& site, detail::BodyRef body, std::vector<CarryType>& carry,
                  std::span<const ShapedArray> more, bool& settled) {
  std::vector<ShapedArray> types = just_types(carry);
  types.insert(types.end(), more.begin(), more.end());
  settled = true;
  auto checked = [&](std::vector<Array>& leaves, detail::FlatTree& result) {
    body(leaves, result);
    std::vector<ShapedArray> next;
    for (std::size_t k = 0; k < carry.size(); ++k) {
      next.push_back(join_carry(site, k, carry[k], result.leaves[k]));
      settled = settled && same(next[k], carry[k].type);
    }
    for (std::size_t k = 0; k < carry.size(); ++k) {
      if (settled) result.leaves[k] = fit(std::move(result.leaves[k]), next[k], site.source);
      carry[k].type = next[k];
    }
    for (const Array& leaf : result.leaves) checked_node(leaf, site.what, site.source);
  };
  detail::FlatTree result;
  return trace_function(site.what, types, detail::BodyRef(checked), result, inherited_options(),
                        site.source);
}

// Brings init to the types of the carry.
void fit_init(const std::vector<CarryType>& carry, std::vector<Array>& init, SourceLine source) {
  for (std::size_t k = 0; k < carry.size(); ++k)
    init[k] = fit(std::move(init[k]), carry[k].type, source);
}

// Casts the values to vary over these axes too, where casts are inserted automatically.
void widen_values(std::vector<Array>& values, const AxisSet& axes, SourceLine source) {
  for (Array& x : values) {
    const AxisSet missing = axes - node_of(x)->type.axes();
    if (!missing.empty()) x = cast_to_varying(x, missing, source);
  }
}

// Casts closed-over values outside of the program: inside, only some devices might run the cast,
// whose transpose is a collective.
void widen_constants(Traced& traced, const AxisSet& axes, SourceLine source) {
  if (axes.empty() || traced.consts.empty() || !inserts_casts()) return;
  traced.jaxpr = widen(*traced.jaxpr, axes, types_of(traced.jaxpr->outs));
  widen_values(traced.consts, axes, source);
}

void append_moved(std::vector<Array>& values, std::vector<Array> more) {
  for (Array& x : more) values.push_back(std::move(x));
}

}  // namespace

std::vector<Array> stage_scan(const FlowSite& site, detail::BodyRef body, std::vector<Array> init,
                              std::vector<Array> xs, std::int64_t length, bool reverse) {
  std::vector<CarryType> carry = carry_types(init);
  std::vector<ShapedArray> elements;
  for (const Array& x : xs) elements.push_back(element_type(node_of(x)->type));
  Traced traced;
  for (bool settled = false; !settled;) traced = trace_body(site, body, carry, elements, settled);
  fit_init(carry, init, site.source);
  ScanLoopParams params;
  params.jaxpr = std::move(traced.jaxpr);
  params.length = length;
  params.reverse = reverse;
  params.num_consts = static_cast<int>(traced.consts.size());
  params.num_carry = static_cast<int>(init.size());
  std::vector<Array> operands = std::move(traced.consts);
  append_moved(operands, std::move(init));
  append_moved(operands, std::move(xs));
  return bind_all(scan_p, operands, params, site.source);
}

std::vector<Array> stage_while(const FlowSite& site, detail::BodyRef test, detail::BodyRef body,
                               std::vector<Array> init) {
  std::vector<CarryType> carry = carry_types(init);
  Traced condition, traced;
  AxisSet axes;
  auto decided = [&](std::vector<Array>& leaves, detail::FlatTree& result) {
    test(leaves, result);
    check_predicate(site, "what the condition returns",
                    checked_node(result.leaves[0], site.what, site.source).type);
  };
  for (bool settled = false; !settled;) {
    detail::FlatTree result;
    condition = trace_function(site.what, just_types(carry), detail::BodyRef(decided), result,
                               inherited_options(), site.source);
    axes = condition.jaxpr->outs[0].type().axes();
    bool wider = false;
    for (std::size_t k = 0; k < carry.size(); ++k) {
      ShapedArray& type = carry[k].type;
      if (type.axes().contains(axes)) continue;
      if (!carry[k].literal) {
        require_axes(site, site.path(k, "carry"), init[k], axes,
                     "and the condition varies over " + to_string(Axes(axes.names())) +
                         ", so that the number of trips, and with it the result, does too");
      }
      type = type.with_axes(type.axes() | axes);
      wider = true;
    }
    if (wider) continue;
    traced = trace_body(site, body, carry, {}, settled);
  }
  check_divergent_program(*condition.jaxpr, site.what, axes);
  check_divergent_program(*traced.jaxpr, site.what, axes);
  fit_init(carry, init, site.source);
  widen_constants(condition, axes, site.source);
  widen_constants(traced, axes, site.source);
  WhileParams params;
  params.cond_jaxpr = std::move(condition.jaxpr);
  params.body_jaxpr = std::move(traced.jaxpr);
  params.cond_nconsts = static_cast<int>(condition.consts.size());
  params.body_nconsts = static_cast<int>(traced.consts.size());
  std::vector<Array> operands = std::move(condition.consts);
  append_moved(operands, std::move(traced.consts));
  append_moved(operands, std::move(init));
  return bind_all(while_p, operands, params, site.source);
}

namespace {

// A branch that is being traced. It stays open until the results of all branches are known.
struct OpenBranch {
  explicit OpenBranch(const char* name, const detail::AxisEnv* env)
      : trace(name, env, inherited_options()) {}
  JaxprTrace trace;
  detail::FlatTree result;
  Traced traced;
};

}  // namespace

std::vector<Array> merge_constants(std::span<Traced* const> programs) {
  std::vector<Array> all;
  // For each program and constant: the program's binder, or null where it has none.
  std::vector<std::vector<VarRef>> binders(programs.size());
  for (std::size_t p = 0; p < programs.size(); ++p) {
    binders[p].resize(all.size());
    for (std::size_t k = 0; k < programs[p]->consts.size(); ++k) {
      const Array& c = programs[p]->consts[k];
      std::size_t at = 0;
      while (at < all.size() && (binders[p][at] || all[at].node() != c.node())) ++at;
      if (at == all.size()) {
        all.push_back(c);
        binders[p].emplace_back();
      }
      binders[p][at] = programs[p]->jaxpr->binders[k];
    }
  }
  for (std::size_t p = 0; p < programs.size() && !all.empty(); ++p) {
    auto wide = make_ref<Jaxpr>(*programs[p]->jaxpr);
    binders[p].resize(all.size());
    for (std::size_t k = 0; k < all.size(); ++k)
      if (!binders[p][k]) binders[p][k] = make_ref<const Var>(node_of(all[k])->type);
    const auto first = wide->binders.begin();
    wide->binders.erase(first, first + static_cast<std::ptrdiff_t>(programs[p]->consts.size()));
    wide->binders.insert(wide->binders.begin(), binders[p].begin(), binders[p].end());
    programs[p]->jaxpr = std::move(wide);
  }
  return all;
}

std::vector<Array> stage_cond(const FlowSite& site, const Array& index,
                              std::span<const detail::BodyRef> branches,
                              std::span<const std::string> names, std::vector<Array> arguments) {
  const AxisSet axes = node_of(index)->type.axes();
  const std::vector<ShapedArray> types = types_of(arguments);
  std::vector<std::unique_ptr<OpenBranch>> open;
  check_nesting(site.what, site.source);
  for (const detail::BodyRef& branch : branches) {
    OpenBranch& b = *open.emplace_back(std::make_unique<OpenBranch>(site.what, env_for(types)));
    std::vector<Array> leaves;
    for (const ShapedArray& t : types) leaves.push_back(b.trace.argument(t));
    TraceScope scope(b.trace);
    branch(leaves, b.result);
    const detail::FlatTree& first = open[0]->result;
    if (b.result.leaves.size() != first.leaves.size() ||
        !same_structure(b.result.node, first.node) || b.result.key != first.key) {
      throw TypeError(
          std::string(site.what) + ": " + names[0] + " returns " + structure_text(first.node) +
          " and " + names[open.size() - 1] + " " + structure_text(b.result.node) +
          " (or other static members): branches have to agree in structure" + at_line(site.source));
    }
  }
  FlowSite named = site;
  named.tree = &open[0]->result.node;
  std::vector<ShapedArray> joint;
  for (std::size_t k = 0; k < open[0]->result.leaves.size(); ++k) {
    joint.push_back(checked_node(open[0]->result.leaves[k], site.what, site.source).type);
    for (std::size_t b = 1; b < open.size(); ++b) {
      const Array& x = open[b]->result.leaves[k];
      joint[k] = join_branches(named, k, joint[k], names[0],
                               checked_node(x, site.what, site.source).type, names[b]);
    }
    for (std::size_t b = 0; b < open.size(); ++b) {
      require_axes(named, named.path(k, "result") + " of " + names[b], open[b]->result.leaves[k],
                   joint[k].axes(),
                   "where another branch has one that varies over " +
                       to_string(Axes(joint[k].axes().names())));
    }
  }
  for (const auto& b : open) {
    TraceScope scope(b->trace);
    for (std::size_t k = 0; k < joint.size(); ++k)
      b->result.leaves[k] = fit(std::move(b->result.leaves[k]), joint[k], site.source);
    b->traced = b->trace.build(b->result.leaves, site.what, site.source);
    check_divergent_program(*b->traced.jaxpr, site.what, axes);
  }
  std::vector<Traced*> programs;
  for (const auto& b : open) programs.push_back(&b->traced);
  std::vector<Array> operands = merge_constants(programs);
  append_moved(operands, std::move(arguments));
  CondParams params;
  for (const auto& b : open) {
    JaxprRef jaxpr = std::move(b->traced.jaxpr);
    if (!axes.empty() && !operands.empty() && inserts_casts()) {
      std::vector<ShapedArray> wide;
      for (const ShapedArray& t : joint) wide.push_back(t.with_axes(t.axes() | axes));
      jaxpr = widen(*jaxpr, axes, wide);
    }
    params.branches.push_back(std::move(jaxpr));
  }
  if (!axes.empty() && inserts_casts()) widen_values(operands, axes, site.source);
  operands.insert(operands.begin(), index);
  return bind_all(cond_p, operands, params, site.source);
}

std::vector<std::string> branch_names(const ShapedArray& index, std::size_t count) {
  if (index.dtype() == DType::bool_) return {"the false branch", "the true branch"};
  std::vector<std::string> names;
  for (std::size_t b = 0; b < count; ++b) names.push_back("branch " + std::to_string(b));
  return names;
}

}  // namespace shmap
