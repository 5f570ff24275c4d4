// Control flow as equations (while, scan and cond, with programs inside), and the ways in which
// these run: staged, eager, interpreted, lowered. All functions work on leaves.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/array/sharding.h"
#include "core/transforms/tracing/jaxpr_body.h"
#include "core/transforms/tracing/make_jaxpr.h"
#include "shmap/control_flow.h"

namespace shmap {

// Operands: constants of the condition, constants of the body, the carry. Results: the carry.
// cond_jaxpr: (constants, carry) -> (bool[]); body_jaxpr: (constants, carry) -> carry.
extern Primitive while_p;
struct WhileParams : ParamsOf<WhileParams> {
  JaxprRef cond_jaxpr, body_jaxpr;
  int cond_nconsts = 0, body_nconsts = 0;
  void visit(ParamVisitor& v) const override;
};

// Operands: constants, the carry, xs. Results: the carry, ys. jaxpr: (constants, carry, one x of
// each of xs) -> (carry, one y of each of ys). A fori_loop with static bounds is a scan.
extern Primitive scan_p;
struct ScanLoopParams : ParamsOf<ScanLoopParams> {
  JaxprRef jaxpr;
  std::int64_t length = 0;
  bool reverse = false;
  int num_consts = 0, num_carry = 0;
  void visit(ParamVisitor& v) const override;
};

// Operands: the index, then the operands of the branches, which all branches take. A bool index
// selects from the branches (false, true); an integer index is clamped to the branches.
extern Primitive cond_p;
struct CondParams : ParamsOf<CondParams> {
  std::vector<JaxprRef> branches;
  void visit(ParamVisitor& v) const override;
};

// A number of leaves, which parameters keep as an int, as an index.
inline std::size_t count(int n) { return static_cast<std::size_t>(n); }

// The loop or branch in the user's code, for errors.
struct FlowSite {
  const char* what;  // "scan"
  // of the carry or the result; null where the leaves have no tree
  const detail::TreeNode* tree = nullptr;
  // leaves before those of the tree: the index of a fori_loop
  std::size_t hidden = 0;
  SourceLine source;
  // "carry[1]"
  std::string path(std::size_t leaf, const char* root) const;
};

// ---- types (types.cpp)
// The type of a leaf of the carry at the start of a trip. A literal has no variance of its own.
struct CarryType {
  ShapedArray type;
  bool literal = false;
};
std::vector<CarryType> carry_types(std::span<const Array> carry);
// The type of a carry that starts a trip as `in` and ends it as `out`. It is `in`, except that a
// weak host scalar takes the body's dtype, and the variance is that of both. TypeError where the
// types do not fit, or where a cast is missing that the user has to write.
ShapedArray join_carry(const FlowSite& site, std::size_t leaf, const CarryType& in,
                       const Array& out);
// The joint type of leaf `leaf` in the results of two branches. TypeErrors as for join_carry.
ShapedArray join_branches(const FlowSite& site, std::size_t leaf, const ShapedArray& a,
                          const std::string& name_a, const ShapedArray& b,
                          const std::string& name_b);
// Checks the y of one more trip of an eager scan. `joint` is the type of the ys so far, and is
// widened to the type of all.
void check_y(const FlowSite& site, std::size_t leaf, ShapedArray& joint, const Array& y,
             std::int64_t trip);
// Where the user has to write casts: throws the TypeError for a value x that must vary over
// `wanted`. `why` continues the sentence "carry[1] has type f32[2] ".
void require_axes(const FlowSite& site, const std::string& path, const Array& x,
                  const AxisSet& wanted, const std::string& why);
// x with the dtype and weakness of `type`, and cast to vary over at least the axes of `type`. No
// cast where variance is not checked.
Array fit(Array x, const ShapedArray& type, SourceLine source);
// TypeErrors where the predicate or the index has the wrong type.
void check_predicate(const FlowSite& site, const char* noun, const ShapedArray& type);
void check_index(const FlowSite& site, const ShapedArray& type);
ShapedArray element_type(const ShapedArray& xs);  // the type of one x
// the type of ys; the inverse of element_type
ShapedArray stacked_type(const ShapedArray& y, std::int64_t length);
std::vector<ShapedArray> types_of(std::span<const Array> values);
// Shardings around a scan: xs with dim 0 whole, as the scan needs them; one element of such xs; and
// ys, from the sharding of one y.
const Sharding* whole_in_front(const Sharding* xs);
const Sharding* element_sharding(const Sharding* xs);
const Sharding* stacked_sharding(const Sharding* y);

// ---- eager (eager.cpp)
using detail::BodyRef;
std::vector<Array> run_while(const FlowSite& site, BodyRef test, BodyRef body,
                             std::vector<Array> carry);
// Returns the carry, then ys.
std::vector<Array> run_scan(const FlowSite& site, BodyRef body, std::vector<Array> carry,
                            std::vector<Array> xs, std::int64_t length, bool reverse);
// Whether the host cannot decide by this value, because it is batched (vmap) or its blocks differ
// between devices. Such control flow stays an equation.
bool is_beyond_host(const Array& x);
// names: the branches' names, for errors.
detail::BranchLeaves run_cond(const FlowSite& site, const Array& index,
                              std::span<const BodyRef> branches, std::span<const std::string> names,
                              std::vector<Array> arguments);

// ---- as equations of the current trace (staged.cpp)
std::vector<Array> stage_while(const FlowSite& site, BodyRef test, BodyRef body,
                               std::vector<Array> init);
std::vector<Array> stage_scan(const FlowSite& site, BodyRef body, std::vector<Array> init,
                              std::vector<Array> xs, std::int64_t length, bool reverse);
std::vector<Array> stage_cond(const FlowSite& site, const Array& index,
                              std::span<const BodyRef> branches, std::span<const std::string> names,
                              std::vector<Array> arguments);
// Gives the branches of a cond one list of arguments: the constants of all of them, each once,
// which are returned, then the others. A branch's constants are values of its first binders.
std::vector<Array> merge_constants(std::span<Traced* const> programs);
// Names of a cond's or switch's branches: "the true branch", "branch 2".
std::vector<std::string> branch_names(const ShapedArray& index, std::size_t count);

// The program for arguments that vary over these axes too, with results of these types. Casts move
// from the program to its arguments where possible.
JaxprRef widen(const Jaxpr& jaxpr, const AxisSet& axes, std::span<const ShapedArray> results);
// The rules of loops and branches for operands that vary over more axes (stage_in_body.h).
struct WidenCall;
void widen_while(WidenCall& call);
void widen_scan(WidenCall& call);
void widen_cond(WidenCall& call);

// ---- without unused results, carries and operands (prune.cpp)
struct PruneCall;
void prune_while(PruneCall& call);
void prune_scan(PruneCall& call);
void prune_cond(PruneCall& call);

// ---- lowered (lower.cpp)
struct LowerCall;
void lower_while(LowerCall& call);
void lower_scan(LowerCall& call);
void lower_cond(LowerCall& call);

// ---- batched (batch.cpp)
void batch_while(BatchCall& call);
void batch_scan(BatchCall& call);
void batch_cond(BatchCall& call);

}  // namespace shmap
