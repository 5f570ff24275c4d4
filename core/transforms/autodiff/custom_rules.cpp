#include "core/transforms/autodiff/custom_rules.h"

#include <algorithm>

#include "core/array/tree_paths.h"
#include "core/ir/types_of.h"
#include "core/tracing/trace_function.h"
#include "core/transforms/autodiff/derivative_args.h"
#include "core/transforms/autodiff/jvp.h"

namespace shmap {

using detail::TreeNode;

std::size_t leaf_count(const TreeNode& node) { return leaf_paths(node, "").size(); }

void fit_y(const char* what, const TreeNode& node, std::span<Array> y, Types wanted,
           SourceLine made) {
  const std::string root = std::string(what) + ": the rule's y";
  const std::vector<std::string> paths = leaf_paths(node, root);
  if (paths.size() != wanted.size()) {
    throw TypeError(root + " has " + std::to_string(paths.size()) +
                    " arrays, and the function gives " + std::to_string(wanted.size()) +
                    ": return what the function does" + at_line(made));
  }
  const DerivativeSite site{root, "what the function gives", kCotangentRemedy, made};
  for (std::size_t o = 0; o < y.size(); ++o)
    y[o] = fit_derivative(site, paths[o], std::move(y[o]), wanted[o]);
}

std::vector<ShapedArray> called_results(const char* what, const JvpCall& call, const Jaxpr& jaxpr,
                                        int n, SourceLine made) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    if (!call.has_tangent(i)) continue;
    throw TypeError(
        std::string(what) + ": the function closes over a value of type " +
        to_string(call.type(i)) +
        " that is differentiated, and its rule gives no derivative with respect to such "
        "a value. Pass it to the function as one more argument, or close over "
        "stop_gradient of it" +
        origin_text(*node_of(call.primals[i])) + "\n  in the " + what + " made at " + made.str());
  }
  return types_of(jaxpr.outs);
}

Traced trace_called(const char* what, detail::BodyRef f, std::span<const Array> leaves,
                    SourceLine source) {
  std::vector<ShapedArray> types;
  for (const Array& x : leaves) types.push_back(node_of(x)->type);
  detail::FlatTree result;
  return trace_function(what, types, f, result, inherited_options(), source);
}

namespace detail {

bool wants_rules() {
  const Trace& here = current_trace();
  return here.staged() || here.transforms();
}

}  // namespace detail

}  // namespace shmap
