// Functions with a user's derivative rules as equations (custom_jvp, custom_vjp). An equation
// holds the program of the function, which is run or lowered, and the rules, which differentiate
// it.
#pragma once
#include <vector>

#include "core/compiler/lowering/called_program.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "shmap/custom_rules.h"

namespace shmap {

struct JvpCall;

// The operands are the closed-over values, then the function's arguments.
template <class Self, class Code>
struct WithRuleParams : CalledParamsOf<Self> {
  Code rule;
  int num_consts = 0;
  detail::TreeNode arguments;  // the structure of the function's arguments
  SourceLine made;             // where custom_jvp or custom_vjp was called
  void visit(ParamVisitor& v) const override {
    v.value("call_jaxpr", *this->jaxpr);
    v.value("num_consts", static_cast<std::int64_t>(num_consts));
  }
};
extern Primitive custom_jvp_call_p, custom_vjp_call_p;
struct CustomJvpParams : WithRuleParams<CustomJvpParams, detail::RuleCode> {};
struct CustomVjpParams : WithRuleParams<CustomVjpParams, detail::ForwardCode> {};

// A linear map from residuals, and from the tangents of the active arguments, to the tangents of y.
// It is known only by its transpose, which is the backward rule of a custom_vjp; it cannot be run.
extern Primitive custom_vjp_linear_p;
struct CustomVjpLinearParams : ParamsOf<CustomVjpLinearParams> {
  detail::RuleCode backward;
  std::int64_t id = 0;  // unique, so that no two of these equations are merged
  int num_residuals = 0;
  detail::TreeNode arguments;
  std::vector<ShapedArray> in_types;  // of all arguments
  std::vector<bool> active;           // of all arguments: which have a tangent
  std::vector<ShapedArray> y_types;   // of all leaves of y; only the floats among them are results
  SourceLine made;
  void visit(ParamVisitor& v) const override;
};

// ---- shared by custom_jvp and custom_vjp (custom_rules.cpp)
// Brings the leaves of y to the types of the function's program. TypeError where they do not fit.
void fit_y(const char* what, const detail::TreeNode& node, std::span<Array> y, Types wanted,
           SourceLine made);
std::size_t leaf_count(const detail::TreeNode& node);
// The types of a called function's results, which its rule must return too. TypeError where one of
// the first n operands, the closed-over values, has a tangent.
std::vector<ShapedArray> called_results(const char* what, const JvpCall& call, const Jaxpr& jaxpr,
                                        int n, SourceLine made);
// Traces f for leaves of these types, for an equation of the current trace.
struct Traced;
Traced trace_called(const char* what, detail::BodyRef f, std::span<const Array> leaves,
                    SourceLine source);

}  // namespace shmap
