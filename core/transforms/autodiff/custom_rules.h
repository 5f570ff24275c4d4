// Functions with rules of their own as equations: the program of the function, which stands for it
// where it is run or lowered, and the rules, which stand for it where it is differentiated.
#pragma once
#include <vector>

#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/transforms/lowering/called_program.h"
#include "shmap/custom_rules.h"

namespace shmap {

struct JvpCall;

// Operands: what the program closes over, then the function's arguments.
extern Primitive custom_jvp_call_p;
struct CustomJvpParams : CalledParamsOf<CustomJvpParams> {
  detail::RuleCode rule;
  int num_consts = 0;
  SourceLine made;  // where custom_jvp was called
  void visit(ParamVisitor& v) const override;
};

extern Primitive custom_vjp_call_p;
struct CustomVjpParams : CalledParamsOf<CustomVjpParams> {
  detail::ForwardCode rule;
  int num_consts = 0;
  detail::TreeNode arguments;
  SourceLine made;
  void visit(ParamVisitor& v) const override;
};

// The linear map that a custom_vjp's second rule is the transpose of: from residuals and the
// tangents of those arguments that have some to the tangents of y. It cannot be run.
extern Primitive custom_vjp_linear_p;
struct CustomVjpLinearParams : ParamsOf<CustomVjpLinearParams> {
  detail::RuleCode backward;
  std::int64_t id = 0;  // its own
  int num_residuals = 0;
  detail::TreeNode arguments;
  std::vector<ShapedArray> in_types;  // of all arguments
  std::vector<bool> active;           // of them, which have a tangent
  std::vector<ShapedArray> y_types;   // of all of y; the results are its floats
  SourceLine made;
  void visit(ParamVisitor& v) const override;
};
// The same map where residuals and tangents vary over these axes too.
std::shared_ptr<const Params> varying_over(const CustomVjpLinearParams& p, const AxisSet& axes);

// ---- what both have in common (custom_rules.cpp)
// One of y's leaves brought to the type that the function's program gives; TypeError.
void fit_y(const char* what, const detail::TreeNode& node, std::span<Array> y, Types wanted,
           SourceLine made);
std::size_t leaf_count(const detail::TreeNode& node);
// The types of a called function's results, to which its rule is held; TypeError where one of the
// first n operands, which the function closes over, has a tangent.
std::vector<ShapedArray> called_results(const char* what, const JvpCall& call, const Jaxpr& jaxpr,
                                        int n, SourceLine made);
// Which trace interprets a call on these values.
enum class RuleTraceKind { here, below, jvp, batch, staged };
struct RuleTrace {
  RuleTraceKind kind;
  Trace* trace;  // below: that one; else the current one
};
RuleTrace rule_trace(std::span<const Array> leaves);
// The program of f for leaves of these types, for an equation of the current trace.
struct Traced;
Traced trace_called(const char* what, detail::BodyRef f, std::span<const Array> leaves,
                    SourceLine source);

}  // namespace shmap
