// A loop of the host calls the body, operation by operation.
//
// Where the predicate varies over devices, each branch that some device takes runs for all devices,
// and so does each trip. Each device's block is then selected from its own branch. This merges
// lists of blocks and copies no data.
#include "core/transforms/control_flow/eager_flow.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/array/tree_paths.h"
#include "core/base/element_type.h"
#include "core/compiler/lowering/automatic_axes.h"
#include "core/compiler/lowering/per_device.h"
#include "core/compiler/lowering/reshard_blocks.h"
#include "core/ir/divergence.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ir/types_of.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/ops/slicing.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/reshard.h"
#include "core/tracing/trace_function.h"
#include "core/transforms/control_flow/carry_types.h"
#include "core/transforms/control_flow/scan_elements.h"
#include "core/transforms/control_flow/staged_flow.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

// The value that decides, read on the host: one entry, or one for each local device where it
// varies.
struct Decision {
  AxisSet axes;
  std::vector<std::int64_t> values;
  bool varies() const { return !axes.empty(); }
};

Decision decide(const Array& x, const char* what, SourceLine source) {
  const Node& node = checked_node(x, what, source);
  if (node.trace != 0 && !is_active(node.trace)) throw_escaped(node, what, source);
  Decision d{node.type.axes(), {}};
  if (!d.varies()) {
    d.values.push_back(integer_at(copy_to_host(x, what, source).data(), node.type.dtype()));
    return d;
  }
  const auto& stored = static_cast<const StoredNode&>(node);
  for (std::uint32_t p = 0; p < stored.count; ++p)
    d.values.push_back(integer_at(block_to_host(stored, p).data(), node.type.dtype()));
  return d;
}

PerDeviceTrace& body_trace() { return dynamic_cast<PerDeviceTrace&>(current_trace()); }

// x as a stored value of the body that varies over these axes too.
Array vary(const Array& x, const AxisSet& axes, SourceLine source) {
  PerDeviceTrace& trace = body_trace();
  Array value[] = {x};
  trace.admit(value, "a value of control flow", source);
  value[0] = as_stored(std::move(value[0]), trace.mesh());
  const StoredNode& node = *stored_of(value[0]);
  return relabel(node, node.type.with_axes(node.type.axes() | axes),
                 trace.automatic() != 0 ? node.sharding : nullptr, trace.id(), true);
}

// For each local device, the number of the device whose branch its blocks come from: for an active
// device, the device itself. An inactive device's blocks are discarded later, but a value that
// varies over these axes alone is stored once per cohort; therefore an inactive device uses an
// active device of its cohort, or any active device if its cohort has none.
std::vector<std::size_t> guides(const AxisSet& axes) {
  const detail::MeshImpl& mesh = *body_trace().mesh();
  const std::vector<std::uint32_t>& leader = mesh.cohorts(axes.mask_in(*mesh.env())).leader;
  const std::size_t n = leader.size();
  std::vector<std::size_t> of_cohort(n, n), guide(n);
  std::size_t any = n;
  for (std::size_t p = n; p-- > 0;)
    if (is_active_device(static_cast<std::uint32_t>(p))) of_cohort[leader[p]] = any = p;
  for (std::size_t p = 0; p < n; ++p) {
    const std::size_t near = of_cohort[leader[p]];
    guide[p] = any == n || is_active_device(static_cast<std::uint32_t>(p)) ? p
               : near < n                                                  ? near
                                                                           : any;
  }
  return guide;
}

// A value whose block on device p is that of values[choice[p]]. All values are stored in the body.
Array merge(std::vector<Array> values, const std::vector<std::size_t>& choice,
            const ShapedArray& type, SourceLine source) {
  const bool alike = std::all_of(values.begin(), values.end(), [&](const Array& x) {
    return stored_of(x)->sharding == stored_of(values[0])->sharding;
  });
  if (!alike)
    for (Array& x : values) x = whole_in_body(x, source);
  const StoredNode& first = *stored_of(values[0]);
  StoredNode* node = StoredNode::make(type, first.mesh, first.count);
  Array out = Array::of(node);
  node->trace = first.trace;
  node->sharding = first.sharding;
  node->committed = true;
  for (std::uint32_t p = 0; p < node->count; ++p)
    node->blocks()[p] = stored_of(values[choice[p]])->blocks()[p];
  return out;
}

std::vector<Array> call(detail::BodyRef body, std::vector<Array>& leaves) {
  detail::FlatTree result;
  body(leaves, result);
  leaves.clear();
  return std::move(result.leaves);
}

// Makes `out`, brought to the types that the trip began with, the carry of the next trip.
void take_over(const FlowSite& site, const std::vector<CarryType>& types, std::vector<Array>& out,
               std::vector<Array>& carry) {
  carry.resize(types.size());
  for (std::size_t k = 0; k < types.size(); ++k) {
    const ShapedArray type = join_carry(site, k, types[k], out[k]);
    carry[k] = fit(std::move(out[k]), type, site.source);
  }
}

Array element(const Array& xs, std::int64_t i, SourceLine source) {
  const Shape shape = element_type(node_of(xs)->type).dims();
  return bind_reshape(slice_dim(xs, 0, i, i + 1, source), shape, source);
}

// The ys of a scan without trips. Their types are found by tracing the body.
std::vector<Array> no_ys(const FlowSite& site, detail::BodyRef body,
                         const std::vector<Array>& carry, const std::vector<Array>& xs) {
  std::vector<ShapedArray> types = types_of(carry);
  for (const Array& x : xs) types.push_back(element_type(node_of(x)->type));
  detail::FlatTree result;
  const Traced traced =
      trace_function(site.what, types, body, result, inherited_options(), site.source);
  std::vector<Array> ys;
  for (std::size_t o = carry.size(); o < traced.jaxpr->outs.size(); ++o) {
    const ShapedArray type = stacked_type(traced.jaxpr->outs[o].type(), 0);
    Array empty = zeros_of(type.with_axes({}), site.source);
    if (!type.axes().empty()) {
      empty = current_trace().transforms() ? cast_to_varying(empty, type.axes(), site.source)
                                           : vary(empty, type.axes(), site.source);
    }
    ys.push_back(std::move(empty));
  }
  return ys;
}

}  // namespace

std::vector<Array> run_scan(const FlowSite& site, detail::BodyRef body, std::vector<Array> carry,
                            std::vector<Array> xs, std::int64_t length, bool reverse) {
  if (length == 0) {
    std::vector<Array> ys = no_ys(site, body, carry, xs);
    for (Array& y : ys) carry.push_back(std::move(y));
    return carry;
  }
  for (Array& x : xs) {
    const StoredNode* node = stored_of(x);
    if (node && node->sharding && node->sharding->parts(0) > 1)
      x = reshard_array(x, whole_in_front(node->sharding), "scan: xs", site.source);
  }
  std::vector<std::vector<Array>> ys;  // by leaf, by trip
  std::vector<ShapedArray> y_types;
  for (std::int64_t trip = 0; trip < length; ++trip) {
    const std::int64_t i = reverse ? length - 1 - trip : trip;
    const std::vector<CarryType> types = carry_types(carry);
    std::vector<Array> leaves = std::move(carry);
    carry.clear();
    for (const Array& x : xs) leaves.push_back(element(x, i, site.source));
    std::vector<Array> out = call(body, leaves);
    take_over(site, types, out, carry);
    for (std::size_t k = types.size(); k < out.size(); ++k) {
      const std::size_t y = k - types.size();
      if (trip == 0) {
        ys.emplace_back();
        y_types.push_back(checked_node(out[k], site.what, site.source).type);
      }
      check_y(site, y, y_types[y], out[k], trip);
      ys[y].push_back(std::move(out[k]));
    }
  }
  for (std::vector<Array>& y : ys) {
    if (reverse) std::reverse(y.begin(), y.end());
    carry.push_back(stack(y, 0, site.source));
  }
  return carry;
}

bool is_beyond_host(const Array& x) {
  const Node* node = node_of(x);
  if (!node || !current_trace().transforms()) return false;
  return node_of(primal_of(x))->kind == NodeKind::batched || !node->type.axes().empty();
}

std::vector<Array> run_while(const FlowSite& site, detail::BodyRef test, detail::BodyRef body,
                             std::vector<Array> carry) {
  // of the local devices; empty until the loop may have ended for some of them
  std::vector<bool> active;
  AxisSet axes;
  for (;;) {
    std::vector<Array> leaves = carry;
    std::vector<Array> answer = call(test, leaves);
    check_predicate(site, "what the condition returns",
                    checked_node(answer[0], site.what, site.source).type);
    // Stages the rest of the loop as an equation, from the current carry.
    if (is_beyond_host(answer[0])) return stage_while(site, test, body, std::move(carry));
    const Decision go = decide(answer[0], "the condition of a loop", site.source);
    answer.clear();
    if (go.varies()) {
      if (active.empty()) {
        for (std::uint32_t p = 0; p < go.values.size(); ++p) active.push_back(is_active_device(p));
      }
      axes = axes | go.axes;
      for (std::size_t p = 0; p < active.size(); ++p) active[p] = active[p] && go.values[p] != 0;
      for (std::size_t k = 0; k < carry.size(); ++k) {
        if (node_of(carry[k])->type.axes().contains(axes)) continue;
        require_axes(site, current_trace().auto_pbroadcast() ? "" : site.path(k, "carry"), carry[k],
                     axes,
                     "and the condition varies over " + to_string(Axes(axes.names())) +
                         ", so that the number of trips, and with it the result, does too");
        carry[k] = vary(carry[k], axes, site.source);
      }
      if (std::find(active.begin(), active.end(), true) == active.end()) return carry;
    } else if (go.values[0] == 0) {
      return carry;
    }
    const std::vector<CarryType> types = carry_types(carry);
    std::vector<Array> out;
    if (active.empty()) {
      leaves = std::move(carry);
      out = call(body, leaves);
      take_over(site, types, out, carry);
      continue;
    }
    std::vector<Array> next;
    const std::vector<std::size_t> guide = guides(axes);
    {
      DivergentScope scope(site.what, axes, active);
      leaves = carry;
      out = call(body, leaves);
      take_over(site, types, out, next);
    }
    for (std::size_t k = 0; k < carry.size(); ++k) {
      std::vector<Array> values{vary(carry[k], axes, site.source),
                                vary(next[k], axes, site.source)};
      std::vector<std::size_t> choice;
      for (const std::size_t g : guide) choice.push_back(active[g] ? 1 : 0);
      const ShapedArray type = node_of(values[1])->type;
      carry[k] = merge(std::move(values), choice, type, site.source);
    }
  }
}

detail::BranchLeaves run_cond(const FlowSite& site, const Array& index,
                              std::span<const detail::BodyRef> branches,
                              std::span<const std::string> names, std::vector<Array> arguments) {
  if (is_beyond_host(index))
    return {stage_cond(site, index, branches, names, std::move(arguments)), 0};
  Decision chosen = decide(index, site.what, site.source);
  const auto last = static_cast<std::int64_t>(branches.size()) - 1;
  std::vector<std::size_t> choice;
  for (std::int64_t v : chosen.values)
    choice.push_back(static_cast<std::size_t>(std::clamp<std::int64_t>(v, 0, last)));
  if (!chosen.varies()) {
    detail::FlatTree result;
    branches[choice[0]](arguments, result);
    return {std::move(result.leaves), choice[0]};
  }
  std::vector<bool> here;
  for (std::uint32_t p = 0; p < choice.size(); ++p) here.push_back(is_active_device(p));
  const std::vector<std::size_t> guide = guides(chosen.axes), own = choice;
  for (std::size_t p = 0; p < choice.size(); ++p) choice[p] = own[guide[p]];

  std::vector<std::size_t> taken(choice);
  std::sort(taken.begin(), taken.end());
  taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
  std::vector<detail::FlatTree> results(taken.size());
  for (std::size_t t = 0; t < taken.size(); ++t) {
    std::vector<bool> active(here);
    for (std::size_t p = 0; p < choice.size(); ++p) active[p] = active[p] && choice[p] == taken[t];
    DivergentScope scope(site.what, chosen.axes, active);
    std::vector<Array> leaves = arguments;
    branches[taken[t]](leaves, results[t]);
    if (results[t].leaves.size() != results[0].leaves.size() ||
        !same_structure(results[t].node, results[0].node) || results[t].key != results[0].key) {
      throw TypeError(std::string(site.what) + ": " + names[taken[0]] + " returns " +
                      structure_text(results[0].node) + " and " + names[taken[t]] + " " +
                      structure_text(results[t].node) +
                      " (or other static members): branches have to agree in structure" +
                      at_line(site.source));
    }
    for (const Array& x : results[t].leaves) checked_node(x, site.what, site.source);
  }
  for (std::size_t& c : choice)
    c = static_cast<std::size_t>(std::lower_bound(taken.begin(), taken.end(), c) - taken.begin());
  FlowSite named = site;
  named.tree = &results[0].node;
  detail::BranchLeaves out{{}, taken[0]};
  for (std::size_t k = 0; k < results[0].leaves.size(); ++k) {
    ShapedArray type = node_of(results[0].leaves[k])->type;
    for (std::size_t t = 1; t < taken.size(); ++t)
      type = join_branches(named, k, type, names[taken[0]], node_of(results[t].leaves[k])->type,
                           names[taken[t]]);
    std::vector<Array> values;
    for (std::size_t t = 0; t < taken.size(); ++t) {
      const Array& x = results[t].leaves[k];
      if (!current_trace().auto_pbroadcast()) {
        require_axes(named, named.path(k, "result") + " of " + names[taken[t]], x, type.axes(),
                     "where another branch has one that varies over " +
                         to_string(Axes(type.axes().names())));
      }
      values.push_back(vary(fit(x, type, site.source), chosen.axes, site.source));
    }
    type = type.with_axes(type.axes() | chosen.axes);
    out.leaves.push_back(merge(std::move(values), choice, type, site.source));
  }
  return out;
}

}  // namespace shmap
