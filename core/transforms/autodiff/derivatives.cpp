// The public derivatives on leaves: checks the arguments and calls jvp.h and linearize.h.
#include "core/array/tree_paths.h"
#include "core/base/counted.h"
#include "core/ir/types_of.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "core/tracing/trace_function.h"
#include "core/transforms/autodiff/derivative_args.h"
#include "core/transforms/autodiff/linearize.h"
#include "core/transforms/autodiff/transpose.h"
#include "shmap/grad.h"
#include "shmap/jvp.h"
#include "shmap/linearize.h"

namespace shmap::detail {

namespace {

std::vector<ShapedArray> types_of_results(std::span<const Array> values) {
  std::vector<ShapedArray> types;
  for (const Array& x : values) types.push_back(node_of(x)->type);
  return types;
}

std::vector<bool> differentiable(std::span<const ShapedArray> types) {
  std::vector<bool> out;
  for (const ShapedArray& t : types) out.push_back(is_differentiable(t.dtype()));
  return out;
}

}  // namespace

DualLeaves jvp_leaves(BodyRef f, FlatTree primals, const FlatTree& tangents, SourceLine source) {
  ensure_started();
  const std::vector<ShapedArray> types = argument_types("jvp: a primal", primals, source);
  const std::vector<Array> directions = fit_derivatives(
      {"jvp: tangents", "primals", kTangentRemedy, source}, tangents, primals.node, types);
  FlatTree result;
  Duals duals = jvp_of(f, std::move(primals.leaves), directions, result, source);
  const std::vector<ShapedArray> out_types = types_of_results(duals.primals);
  fill_zeros(duals.tangents, out_types, source);
  return {std::move(duals.primals), std::move(duals.tangents)};
}

// ---- linear maps

struct LinearState {
  std::string what;  // for errors: "vjp"
  TreeNode arguments, result;
  LinearProgram linear;
};

LinearizedLeaves linearize_leaves(const char* what, BodyRef f, FlatTree arguments,
                                  SourceLine source) {
  ensure_started();
  const std::vector<ShapedArray> types = argument_types(what, arguments, source);
  FlatTree result;
  Linearized made =
      linearize_of(f, std::move(arguments.leaves), differentiable(types), result, source, what);
  auto state = std::make_shared<LinearState>();
  *state = {what, std::move(arguments.node), std::move(result.node), std::move(made.linear)};
  return {std::move(made.outs), LinearFunction(std::move(state))};
}

std::vector<Array> LinearFunction::apply(const FlatTree& tangents, SourceLine source) const {
  const LinearProgram& linear = state_->linear;
  std::vector<Array> out =
      linear.apply(fit_derivatives({state_->what + ": tangents", "args", kTangentRemedy, source},
                                   tangents, state_->arguments, linear.in_types),
                   source);
  fill_zeros(out, linear.out_types, source);
  return out;
}

std::vector<Array> LinearFunction::transpose(const FlatTree& cotangents, SourceLine source) const {
  const LinearProgram& linear = state_->linear;
  std::vector<Array> out = linear.transpose(
      fit_derivatives({state_->what + ": the cotangent", "the result", kCotangentRemedy, source},
                      cotangents, state_->result, linear.out_types),
      source);
  fill_zeros(out, linear.in_types, source);
  return out;
}

LinearFunction linear_transpose_leaves(BodyRef f, const FlatTree& arguments, SourceLine source) {
  ensure_started();
  auto state = std::make_shared<LinearState>();
  LinearProgram& linear = state->linear;
  for (const Array& x : arguments.leaves)
    linear.in_types.push_back(checked_node(x, "linear_transpose", source).type);
  StagingOptions options = inherited_options();
  options.inline_scalars = false;
  // What does not depend on the arguments is computed now and once, and is not part of the linear
  // program.
  options.below = &current_trace();
  FlatTree result;
  Traced traced = trace_function("linear_transpose", linear.in_types, f, result, options, source);
  linear.jaxpr = std::move(traced.jaxpr);
  linear.residuals = std::move(traced.consts);
  linear.active_in.assign(linear.in_types.size(), true);
  linear.out_types = types_of(linear.jaxpr->outs);
  linear.active_out.assign(linear.out_types.size(), true);
  state->what = "linear_transpose";
  state->arguments = arguments.node;
  state->result = std::move(result.node);
  return LinearFunction(std::move(state));
}

// ---- grad

namespace {

struct ArgumentRange {
  std::size_t first, count;
};

// The range of each argument's leaves.
std::vector<ArgumentRange> argument_ranges(const TreeNode& list) {
  std::vector<ArgumentRange> out;
  std::size_t next = 0;
  for (const TreeNode& child : list.children) {
    const std::size_t n = leaf_paths(child, "").size();
    out.push_back({next, n});
    next += n;
  }
  return out;
}

std::size_t checked_argnum(const char* what, int number, std::size_t count, SourceLine source) {
  const int n = static_cast<int>(count);
  if (number >= -n && number < n) return static_cast<std::size_t>(number < 0 ? number + n : number);
  throw ValueError(std::string(what) + ": the argument number " + std::to_string(number) +
                   " was asked for, and the function was called with " + counted(n, "argument") +
                   ": numbers from 0 to " + std::to_string(n - 1) + " are wanted" +
                   at_line(source));
}

// Checks that the loss is a floating-point scalar.
void check_loss(const char* what, const TreeNode& node, const Array& loss, bool aux,
                SourceLine source) {
  const std::string name = std::string(what) + ": " + (aux ? "the loss" : "the function's result");
  if (node.kind != TreeNode::leaf) {
    throw TypeError(name + " is " + structure_text(node) +
                    ", and only one scalar has a gradient: return one array" +
                    (aux ? "" : ", with what else there is in std::pair{loss, aux} and has_aux") +
                    at_line(source));
  }
  const ShapedArray& type = checked_node(loss, what, source).type;
  if (type.rank() != 0) {
    throw TypeError(name + " has type " + to_string(type) +
                    ", and only a scalar has a gradient: reduce it with sum or mean, or use jacrev "
                    "or vjp" +
                    at_line(source));
  }
  if (!is_differentiable(type.dtype())) {
    throw TypeError(name + " has type " + to_string(type) +
                    ", and only floating values have a gradient: convert it with astype" +
                    at_line(source));
  }
}

}  // namespace

GradLeaves grad_leaves(const char* what, BodyRef f, FlatTree arguments,
                       std::span<const int> argnums, bool aux, SourceLine source) {
  ensure_started();
  const std::vector<ShapedArray> types = argument_types(what, arguments, source);
  const std::vector<ArgumentRange> ranges = argument_ranges(arguments.node);
  const std::vector<std::string> paths = leaf_paths(arguments.node, "args");
  std::vector<bool> active(types.size(), false);
  std::vector<ArgumentRange> asked;
  for (const int number : argnums) {
    asked.push_back(ranges[checked_argnum(what, number, ranges.size(), source)]);
    for (std::size_t i = asked.back().first; i < asked.back().first + asked.back().count; ++i) {
      active[i] = true;
      if (is_differentiable(types[i].dtype())) continue;
      throw TypeError(std::string(what) + ": " + paths[i] + " has type " + to_string(types[i]) +
                      ", and only floating values have a gradient: convert it with astype, or "
                      "differentiate with respect to other arguments; vjp gives zeros for it" +
                      at_line(source));
    }
  }
  FlatTree result;
  // Nothing reads the tangents of the aux leaves, so that they are left out of the linear program.
  auto body = [&](std::vector<Array>& leaves, FlatTree& out) {
    f(leaves, out);
    const TreeNode& node = aux ? out.node.children[0] : out.node;
    check_loss(what, node, out.leaves.empty() ? Array() : out.leaves[0], aux, source);
    const auto& trace = static_cast<const JvpTrace&>(current_trace());
    for (std::size_t o = 1; o < out.leaves.size(); ++o)
      out.leaves[o] = trace.split(out.leaves[o]).first;
  };
  Linearized made =
      linearize_of(BodyRef(body), std::move(arguments.leaves), active, result, source, what);
  const ShapedArray& type = made.linear.out_types[0];
  std::vector<Array> cotangents(made.outs.size());
  cotangents[0] = fit_derivative({what, "the result", "", source}, what, Array(1.f), type);
  std::vector<Array> all = made.linear.transpose(cotangents, source);
  GradLeaves out;
  out.outs = std::move(made.outs);
  for (const ArgumentRange& range : asked) {
    for (std::size_t i = range.first; i < range.first + range.count; ++i)
      out.gradients.push_back(or_zeros(all[i], types[i], source));
  }
  return out;
}

}  // namespace shmap::detail
