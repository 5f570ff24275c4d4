#include <optional>

#include "core/transforms/autodiff/partial_eval.h"
#include "core/transforms/autodiff/rule_call.h"

namespace shmap {

using detail::BodyRef;
using detail::FlatTree;
using detail::RuleCode;

namespace {

struct CustomJvp {
  using Params = CustomJvpParams;
  using Code = RuleCode;
  static constexpr const char* name = "custom_jvp";
  static Primitive& primitive() { return custom_jvp_call_p; }
  RuleResult differentiate(const RuleCode& rule, const RuleCall& call) const;
  RuleCode batched(const RuleCode& rule, std::vector<bool> batched, std::int64_t size) const {
    return batched_jvp_rule(rule, std::move(batched), size);
  }
  const detail::TreeNode& arguments;
  SourceLine made;
};

// Calls the user's rule under the current trace, and checks its result.
RuleResult CustomJvp::differentiate(const RuleCode& rule, const RuleCall& call) const {
  std::vector<Array> leaves(call.primals.begin(), call.primals.end());
  for (std::size_t i = 0; i < call.primals.size(); ++i)
    leaves.push_back(or_zeros(call.tangents[i], node_of(call.primals[i])->type, made));
  FlatTree result;
  {
    UserCodeScope user;
    std::optional<PartialEvaluation> partial;
    if (call.linear) partial.emplace(*call.linear);
    rule.call(rule.object.get(), leaves, result, call.like);
  }
  const detail::TreeNode &y_node = result.node.children[0], &dot_node = result.node.children[1];
  const auto n = static_cast<std::ptrdiff_t>(leaf_count(y_node));
  RuleResult out;
  out.y.assign(result.leaves.begin(), result.leaves.begin() + n);
  if (call.wanted) fit_y("custom_jvp", y_node, out.y, *call.wanted, made);
  std::vector<ShapedArray> types;
  for (const Array& x : out.y) {
    types.push_back(checked_node(x, "custom_jvp: the rule's y", made).type);
    if (call.linear && call.linear->is_staged(x)) {
      throw TypeError("custom_jvp: the rule's y of type " + to_string(types.back()) +
                      " is computed from the tangents: compute y from the primals alone" +
                      at_line(made));
    }
  }
  FlatTree given;
  given.node = dot_node;
  given.leaves.assign(result.leaves.begin() + n, result.leaves.end());
  out.y_dot = fit_derivatives({"custom_jvp: the rule's y_dot", "its y",
                               "sum it over the devices with psum(x, axes)", made, true},
                              given, y_node, types);
  return out;
}

}  // namespace

constinit Primitive custom_jvp_call_p = primitive_with_rule<CustomJvp>("custom_jvp_call");

void register_custom_jvp() { register_primitive(custom_jvp_call_p); }

namespace detail {

std::vector<Array> custom_jvp_leaves(BodyRef f, RuleCode rule, void* like, FlatTree arguments,
                                     SourceLine source) {
  return leaves_with_rule<CustomJvp>(f, rule, like, std::move(arguments), source);
}

}  // namespace detail
}  // namespace shmap
