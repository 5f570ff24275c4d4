// The functions of include/shmap/control_flow.h on leaves: checks the arguments and calls the eager
// or the staged implementation, as the current trace needs it.
#include "shmap/control_flow.h"

#include <limits>

#include "core/array/tree_paths.h"
#include "core/ops/promote.h"
#include "core/runtime/host_transfer.h"
#include "core/transforms/control_flow/carry_types.h"
#include "core/transforms/control_flow/eager_flow.h"
#include "core/transforms/control_flow/flow_site.h"
#include "core/transforms/control_flow/staged_flow.h"
#include "shmap/ops.h"

namespace shmap::detail {

namespace {

// A body whose result must have the structure of the carry; counts the leaves and names them in
// errors.
template <class Part>
auto checked_body(const FlowSite& site, const FlatTree& init, BodyRef body, Part part) {
  return [&site, &init, body, part](std::vector<Array>& leaves, FlatTree& result) {
    body(leaves, result);
    const TreeNode& node = part(result.node);
    if (same_structure(node, init.node) && result.key.compare(0, init.key.size(), init.key) == 0)
      return;
    throw TypeError(std::string(site.what) + ": the carry begins as " + structure_text(init.node) +
                    ", and the body returns " + structure_text(node) +
                    (same_structure(node, init.node) ? " with other static members" : "") +
                    ": a carry keeps its structure" + at_line(site.source));
  };
}

void check_leaves(const FlowSite& site, const std::vector<Array>& leaves, const char* root) {
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    if (node_of(leaves[k])) continue;
    checked_node(leaves[k], (std::string(site.what) + ": " + site.path(k, root)).c_str(),
                 site.source);
  }
}

const ShapedArray& bound_type(const Array& x, const char* which, SourceLine source) {
  const std::string what = std::string("fori_loop: the ") + which + " bound";
  const ShapedArray& type = checked_node(x, what.c_str(), source).type;
  if (type.rank() != 0 || !is_integer(type.dtype())) {
    throw TypeError(what + " has type " + to_string(type) + ", and an integer scalar is wanted" +
                    at_line(source));
  }
  return type;
}

// A dtype that holds both bounds.
DType index_dtype(const ShapedArray& lo, const ShapedArray& hi) {
  const auto wide = [](const ShapedArray& t) {
    return itemsize(t.dtype()) > 4 || t.dtype() == DType::u32;
  };
  return wide(lo) || wide(hi) ? DType::i64 : DType::i32;
}

Array index_literal(std::int64_t value, DType dtype) {
  return convert(Array(value), dtype, {}, false);
}

std::int64_t read_bound(const Array& x, SourceLine source) {
  const Array wide = convert(x, DType::i64, source);
  return wide.item<std::int64_t>(source);
}

bool is_literal(const Array& x) { return node_of(x)->kind == NodeKind::literal; }

std::int64_t trip_count(const Array& lo, const Array& hi, SourceLine source) {
  const std::int64_t from = read_bound(lo, source), to = read_bound(hi, source);
  if (to <= from) return 0;
  std::int64_t n = 0;
  return __builtin_sub_overflow(to, from, &n) ? std::numeric_limits<std::int64_t>::max() : n;
}

}  // namespace

std::vector<Array> fori_loop_leaves(Array lo, Array hi, BodyRef body, FlatTree init,
                                    SourceLine source) {
  ensure_started();
  FlowSite site{"fori_loop", &init.node, 0, source};
  const DType dtype = index_dtype(bound_type(lo, "lower", source), bound_type(hi, "upper", source));
  check_leaves(site, init.leaves, "carry");
  auto checked =
      checked_body(site, init, body, [](const TreeNode& n) -> const TreeNode& { return n; });
  const bool staged = current_trace().staged();
  const bool varies = !node_of(lo)->type.axes().empty() || !node_of(hi)->type.axes().empty() ||
                      is_beyond_host(lo) || is_beyond_host(hi);
  std::vector<Array> carry = std::move(init.leaves);
  if (!staged && !varies) {
    const std::int64_t from = read_bound(lo, source), trips = trip_count(lo, hi, source);
    // The loop as a scan without xs: each trip passes the index.
    std::int64_t i = from;
    auto trip = [&](std::vector<Array>& leaves, FlatTree& result) {
      leaves.insert(leaves.begin(), index_literal(i++, dtype));
      checked(leaves, result);
    };
    if (trips == 0) return carry;
    return run_scan(site, BodyRef(trip), std::move(carry), {}, trips, false);
  }
  // The loop as a while_loop, whose carry begins with the index.
  FlowSite indexed{"fori_loop", &init.node, 1, source};
  auto step = [&](std::vector<Array>& leaves, FlatTree& result) {
    const Array i = leaves[0];
    checked(leaves, result);
    result.leaves.insert(result.leaves.begin(), i + index_literal(1, dtype));
  };
  const auto drop_index = [](std::vector<Array> results) {
    results.erase(results.begin());
    return results;
  };
  const bool fixed = is_literal(lo) && is_literal(hi);
  const std::int64_t trips = fixed ? trip_count(lo, hi, source) : 0;
  carry.insert(carry.begin(), convert(std::move(lo), dtype, source, false));
  if (fixed)
    return drop_index(stage_scan(indexed, BodyRef(step), std::move(carry), {}, trips, false));
  const Array end = convert(std::move(hi), dtype, source, false);
  auto test = [&](std::vector<Array>& leaves, FlatTree& result) {
    result.leaves.push_back(leaves[0] < end);
    leaves.clear();
  };
  return drop_index(staged ? stage_while(indexed, BodyRef(test), BodyRef(step), std::move(carry))
                           : run_while(indexed, BodyRef(test), BodyRef(step), std::move(carry)));
}

std::vector<Array> while_loop_leaves(BodyRef test, BodyRef body, FlatTree init, SourceLine source) {
  ensure_started();
  FlowSite site{"while_loop", &init.node, 0, source};
  check_leaves(site, init.leaves, "carry");
  auto checked =
      checked_body(site, init, body, [](const TreeNode& n) -> const TreeNode& { return n; });
  std::vector<Array> carry = std::move(init.leaves);
  return current_trace().staged() ? stage_while(site, test, BodyRef(checked), std::move(carry))
                                  : run_while(site, test, BodyRef(checked), std::move(carry));
}

ScanLeaves scan_leaves(BodyRef body, FlatTree init, FlatTree xs, ScanOptions options,
                       SourceLine source) {
  ensure_started();
  FlowSite site{"scan", &init.node, 0, source};
  check_leaves(site, init.leaves, "carry");
  std::int64_t length = options.length;
  if (length < -1) {
    throw ValueError("scan: the length is " + std::to_string(length) + ", and 0 or more is wanted" +
                     at_line(source));
  }
  const auto xs_path = [&](std::size_t k) { return leaf_paths(xs.node, "xs")[k]; };
  std::string first = "length";
  for (std::size_t k = 0; k < xs.leaves.size(); ++k) {
    const ShapedArray& type =
        checked_node(xs.leaves[k], ("scan: " + xs_path(k)).c_str(), source).type;
    if (type.rank() == 0) {
      throw ValueError("scan: " + xs_path(k) + " has type " + to_string(type) +
                       ", and a scan takes its xs apart along their first dim: a scalar has none" +
                       at_line(source));
    }
    if (length < 0) {
      length = type.dims()[0];
      first = xs_path(k);
    } else if (length != type.dims()[0]) {
      throw ValueError("scan: " + xs_path(k) + " has type " + to_string(type) +
                       ", whose first dim has the extent " + std::to_string(type.dims()[0]) +
                       ", and " + first + " says " + std::to_string(length) +
                       ": all xs have one length" + at_line(source));
    }
  }
  if (length < 0) {
    throw ValueError(
        "scan: xs has no arrays, so that the number of trips is not known: give it as "
        "{.length = n}" +
        at_line(source));
  }
  auto checked = checked_body(site, init, body,
                              [](const TreeNode& n) -> const TreeNode& { return n.children[0]; });
  const std::size_t n_carry = init.leaves.size();
  std::vector<Array> carry = std::move(init.leaves), rest = std::move(xs.leaves);
  std::vector<Array> results = current_trace().staged()
                                   ? stage_scan(site, BodyRef(checked), std::move(carry),
                                                std::move(rest), length, options.reverse)
                                   : run_scan(site, BodyRef(checked), std::move(carry),
                                              std::move(rest), length, options.reverse);
  ScanLeaves leaves;
  for (std::size_t k = 0; k < results.size(); ++k)
    (k < n_carry ? leaves.carry : leaves.ys).push_back(std::move(results[k]));
  return leaves;
}

namespace {

BranchLeaves choose(const FlowSite& site, const Array& index, std::span<const BodyRef> branches,
                    FlatTree arguments) {
  check_leaves(site, arguments.leaves, "args");
  const std::vector<std::string> names = branch_names(node_of(index)->type, branches.size());
  if (!current_trace().staged())
    return run_cond(site, index, branches, names, std::move(arguments.leaves));
  return {stage_cond(site, index, branches, names, std::move(arguments.leaves)), 0};
}

}  // namespace

BranchLeaves cond_leaves(Array pred, BodyRef on_true, BodyRef on_false, FlatTree arguments,
                         SourceLine source) {
  ensure_started();
  const FlowSite site{"cond", &arguments.node, 0, source};
  const ShapedArray& type = checked_node(pred, "cond: the predicate", source).type;
  if (type.rank() == 0 && type.dtype() != DType::bool_ && type.dtype() != DType::prng_key)
    pred = pred != Array(0);
  check_predicate(site, "the predicate", node_of(pred)->type);
  const BodyRef branches[] = {on_false, on_true};
  return choose(site, pred, branches, std::move(arguments));
}

BranchLeaves switch_leaves(Array index, std::span<const BodyRef> branches, FlatTree arguments,
                           SourceLine source) {
  ensure_started();
  const FlowSite site{"switch_", &arguments.node, 0, source};
  check_index(site, checked_node(index, "switch_: the index", source).type);
  if (branches.empty())
    throw ValueError("switch_: there are no branches to choose from" + at_line(source));
  return choose(site, index, branches, std::move(arguments));
}

}  // namespace shmap::detail
